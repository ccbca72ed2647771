//! Which part of the model this device holds.

use leptos::prelude::*;
use protocol::spec::ModelSpec;

use super::me::Me;
use crate::{
    browser::live::Live,
    components::{by_mode::ByMode, model_strip::ModelStrip},
    text::{block, pipeline, volunteer as text},
};

/// The card.
#[component]
pub(crate) fn PartCard() -> impl IntoView {
    view! {
        <ByMode
            pipeline=|| view! { <LayerPart/> }.into_any()
            block=|| view! { <BlockPart/> }.into_any()
            serve=|| view! { <LayerPart/> }.into_any()
        />
    }
}

/// The block of this device, in a row of all of them.
#[component]
fn BlockPart() -> impl IntoView {
    let live = expect_context::<Live>();
    let session = expect_context::<Me>().tab.session;
    let mine = Memo::new(move |_| session.with(|session| session.round.as_ref().map(|round| round.block)));
    let count = Memo::new(move |_| {
        live.run.with(|run| run.as_ref().and_then(|run| run.rounds.as_ref()).map_or(0, |r| r.blocks.len()))
    });
    let words = Memo::new(move |_| {
        live.run.with(|run| {
            let rounds = run.as_ref().and_then(|run| run.rounds.as_ref());
            mine.get().map_or(block::NONE_MINE.to_owned(), |mine| format!("{}.", block::name(mine, rounds)))
        })
    });
    let task = move || mine.get().map(|mine| block::task_of(mine, count.get()));
    let label = move || words.with(|words| block::strip_label(count.get(), words));
    let boxes = move || {
        let one = move |index: usize| {
            let is_mine = move || mine.get().is_some_and(|mine| mine as usize == index);
            view! { <span class="box" data-mine=move || is_mine().to_string()><span>{index + 1}</span></span> }
        };
        (0..count.get()).map(one).collect_view()
    };
    view! {
        <section class="card" aria-labelledby="part-title">
            <h2 id="part-title">{text::BLOCK}</h2>
            <div class="strip" role="img" aria-label=label>
                <span class="box end">{block::NOISE}</span>
                <span class="boxes">{boxes}</span>
                <span class="box end">{block::PREDICTION}</span>
            </div>
            <p data-testid="layers-mine">{words}</p>
            <p>{task}</p>
            <p class="quiet">{text::BLOCK_DETAIL}</p>
        </section>
    }
}

/// The layers of this device, in a row of all of them.
#[component]
fn LayerPart() -> impl IntoView {
    let live = expect_context::<Live>();
    let session = expect_context::<Me>().tab.session;
    let model = Memo::new(move |_| -> Option<ModelSpec> {
        let own = session.with(|session| session.run.as_ref().map(|run| run.model.clone()));
        own.or_else(|| live.run.with(|run| run.as_ref().map(|run| run.run.model.clone())))
    });
    let hops = Memo::new(move |_| session.with(|session| session.hops.clone()));
    let mine =
        move || model.with(|model| model.as_ref().map(|model| hops.with(|hops| pipeline::mine(hops, model))));
    view! {
        <section class="card" aria-labelledby="part-title">
            <h2 id="part-title">{text::PART}</h2>
            {move || model.get().map(|model| view! { <ModelStrip model hops/> })}
            <p data-testid="layers-mine">{mine}</p>
            <p class="quiet">{text::PART_DETAIL}</p>
        </section>
    }
}
