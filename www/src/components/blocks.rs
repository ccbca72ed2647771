//! Block mode: the blocks, who is at them, and how far the round is.

use leptos::prelude::*;
use protocol::view::{BlockView, RunView};

use super::chip::Chip;
use crate::{
    block_words,
    format::{count, loss, plural},
    live::Live,
    run_facts,
    words::Tone,
};

/// A block and its devices.
#[derive(Clone, PartialEq)]
struct Place {
    block: BlockView,
    devices: Vec<String>,
}

fn places(run: &RunView) -> Vec<Place> {
    let Some(rounds) = &run.rounds else { return Vec::new() };
    let devices = |index: u32| {
        let at_it = run.workers.iter().filter(|worker| block_words::holds(worker) == Some(index));
        at_it.map(|worker| worker.name.clone()).collect()
    };
    (0..).zip(&rounds.blocks).map(|(index, block)| Place { block: *block, devices: devices(index) }).collect()
}

#[component]
pub fn Blocks() -> impl IntoView {
    let live = expect_context::<Live>();
    let places = Memo::new(move |_| live.run.with(|run| run.as_ref().map(places).unwrap_or_default()));
    let count_of = Memo::new(move |_| places.with(Vec::len));
    let layers = Memo::new(move |_| live.run.with(|run| run.as_ref().map_or(0, |run| run.run.model.layers)));
    let cards = move || {
        let count = count_of.get();
        let per_block = u64::from(layers.get()) / (count.max(1) as u64);
        (0..count).map(|index| view! { <PlaceCard index places per_block/> }).collect_view()
    };
    let aggregator = run_facts::of_rounds(live, |rounds| rounds.aggregator.clone());
    view! {
        <section class="card" aria-labelledby="blocks-title">
            <h2 id="blocks-title">"The blocks"</h2>
            <p class="quiet">
                "Every block learns by itself, on several devices at once, at noise of its own strength. When the model \
                 writes, the blocks take turns in this order, from pure noise to a guess. What the devices of a block \
                 learned in a round becomes one change of the block, by this rule: " {aggregator} "."
            </p>
            <ol class="pipeline" data-testid="blocks">{cards}</ol>
        </section>
    }
}

#[component]
fn PlaceCard(index: usize, places: Memo<Vec<Place>>, per_block: u64) -> impl IntoView {
    let place = Memo::new(move |_| places.with(|places| places.get(index).cloned()));
    let read = move |read: fn(&BlockView) -> String| {
        move || place.with(|place| place.as_ref().map(|place| read(&place.block)))
    };
    let arrived = Signal::derive(move || {
        place.with(|place| place.as_ref().map_or(String::new(), |place| block_words::arrived(&place.block)))
    });
    let tone = Signal::derive(move || {
        place.with(|place| match place {
            Some(Place { block, .. }) if block.replicas == 0 => Tone::Calm,
            Some(Place { block, .. }) if block.arrived == block.replicas => Tone::Good,
            _ => Tone::Busy,
        })
    });
    let share = move || {
        place.with(|place| {
            let block = place.as_ref().map(|place| place.block).unwrap_or_default();
            f64::from(block.arrived) / f64::from(block.replicas.max(1))
        })
    };
    let devices = move || {
        place.with(|place| match place {
            Some(place) if !place.devices.is_empty() => place.devices.join(", "),
            _ => "No device is at it now.".to_owned(),
        })
    };
    view! {
        <li class="place" data-testid=format!("block-{index}")>
            <div class="place-top">
                <span class="place-number" aria-hidden="true">{index + 1}</span>
                <h3>{format!("Block {}", index + 1)}</h3>
                <Chip text=arrived tone=tone/>
            </div>
            <progress
                class="progress"
                max="1"
                value=move || share().to_string()
                aria-label=format!("Work for block {} that is in", index + 1)
            ></progress>
            <p class="place-part">{devices}</p>
            <dl class="facts">
                <div><dt>"Noise"</dt><dd>{read(block_words::range)}</dd></div>
                <div><dt>"Size"</dt><dd>{plural(per_block, "layer", "layers")}</dd></div>
                <div><dt>"Changed"</dt><dd>{read(|block| plural(block.updates, "time", "times"))}</dd></div>
                <div>
                    <dt>"Local cross-entropy, leaky"</dt>
                    <dd>{read(|block| block.local_cross_entropy.map_or("–".to_owned(), loss))}</dd>
                </div>
                <div><dt>"Devices"</dt><dd>{read(|block| count(block.replicas.into()))}</dd></div>
            </dl>
        </li>
    }
}
