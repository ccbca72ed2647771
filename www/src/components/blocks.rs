//! Block mode: the blocks, which devices train them, and how far the round is.

use leptos::prelude::*;
use protocol::view::BlockView;

use super::{chip::Chip, fact::of_rounds};
use crate::{
    browser::live::Live,
    state::places::blocks,
    text::{block as text, numbers::count, worker},
};

/// A block with the names of its devices.
#[derive(Clone, PartialEq)]
struct Place {
    block: BlockView,
    devices: Vec<String>,
}

/// All blocks.
#[component]
pub(crate) fn Blocks() -> impl IntoView {
    let live = expect_context::<Live>();
    let places = Memo::new(move |_| -> Vec<Place> {
        live.run.with(|run| {
            let Some(run) = run else { return Vec::new() };
            let place = |place: crate::state::places::BlockPlace| Place {
                block: place.block,
                devices: place.workers.iter().map(|worker| worker::name(worker, run)).collect(),
            };
            blocks(run).into_iter().map(place).collect()
        })
    });
    let count_of = Memo::new(move |_| places.with(Vec::len));
    let layers = Memo::new(move |_| live.run.with(|run| run.as_ref().map_or(0, |run| run.run.model.layers)));
    let cards = move || {
        let count = count_of.get();
        let per_block = u64::from(layers.get()) / (count.max(1) as u64);
        (0..count).map(|index| view! { <PlaceCard index places per_block/> }).collect_view()
    };
    let aggregator = of_rounds(live, |rounds| rounds.aggregator.clone());
    view! {
        <section class="card" aria-labelledby="blocks-title">
            <h2 id="blocks-title">{text::TITLE}</h2>
            <p class="quiet">{text::EXPLANATION}{aggregator} "."</p>
            <ol class="pipeline" data-testid="blocks">{cards}</ol>
        </section>
    }
}

#[component]
fn PlaceCard(index: usize, places: Memo<Vec<Place>>, per_block: u64) -> impl IntoView {
    let place = Memo::new(move |_| places.with(|places| places.get(index).cloned()));
    let block =
        Memo::new(move |_| place.with(|place| place.as_ref().map_or(BlockView::default(), |p| p.block)));
    let read = move |read: fn(&BlockView) -> String| move || block.with(read);
    let arrived = Signal::derive(move || block.with(text::arrived));
    let tone = Signal::derive(move || block.with(text::arrived_tone));
    let share = move || block.with(|block| f64::from(block.arrived) / f64::from(block.replicas.max(1)));
    let devices = move || {
        place.with(|place| match place {
            Some(place) if !place.devices.is_empty() => place.devices.join(", "),
            _ => text::NO_DEVICE.to_owned(),
        })
    };
    view! {
        <li class="place" data-testid=format!("block-{index}")>
            <div class="place-top">
                <span class="place-number" aria-hidden="true">{index + 1}</span>
                <h3>{text::heading(index)}</h3>
                <Chip text=arrived tone=tone/>
            </div>
            <progress
                class="progress"
                max="1"
                value=move || share().to_string()
                aria-label=text::bar_label(index)
            ></progress>
            <p class="place-part">{devices}</p>
            <dl class="facts">
                <div><dt>{text::NOISE}</dt><dd>{read(text::range)}</dd></div>
                <div><dt>{text::SIZE}</dt><dd>{text::layers(per_block)}</dd></div>
                <div><dt>{text::CHANGED}</dt><dd>{read(text::updates)}</dd></div>
                <div><dt>{text::LOCAL}</dt><dd>{read(text::local_cross_entropy)}</dd></div>
                <div><dt>{text::DEVICES}</dt><dd>{read(|block| count(block.replicas.into()))}</dd></div>
            </dl>
        </li>
    }
}
