//! Which part of the model this device holds.

use leptos::prelude::*;
use protocol::spec::{Hop, ModelSpec};

use crate::{
    block_words, components::model_strip::ModelStrip, format::rough, live::Live, run_facts, tab::Tab, words,
};

#[component]
pub fn PartCard(tab: Tab) -> impl IntoView {
    let block_mode = run_facts::block_mode(expect_context::<Live>());
    move || {
        Some(if block_mode.get()? {
            view! { <BlockPart tab/> }.into_any()
        } else {
            view! { <LayerPart tab/> }.into_any()
        })
    }
}

/// The block of this device, in a row of all of them.
#[component]
fn BlockPart(tab: Tab) -> impl IntoView {
    let live = expect_context::<Live>();
    let mine =
        Memo::new(move |_| tab.session.with(|session| session.round.as_ref().map(|round| round.block)));
    let count = Memo::new(move |_| {
        live.run.with(|run| run.as_ref().and_then(|run| run.rounds.as_ref()).map_or(0, |r| r.blocks.len()))
    });
    let words = Memo::new(move |_| {
        live.run.with(|run| {
            let rounds = run.as_ref().and_then(|run| run.rounds.as_ref());
            match mine.get() {
                Some(mine) => format!("{}.", block_words::block(mine, rounds)),
                None => "This device has no block now.".to_owned(),
            }
        })
    });
    let task = move || mine.get().map(|mine| block_words::task_of_block(mine, count.get()));
    let label = move || {
        format!("The model: {} blocks in the order in which they take turns. {}", count.get(), words.get())
    };
    let boxes = move || {
        let one = move |index: usize| {
            let is_mine = move || mine.get().is_some_and(|mine| mine as usize == index);
            view! { <span class="box" data-mine=move || is_mine().to_string()><span>{index + 1}</span></span> }
        };
        (0..count.get()).map(one).collect_view()
    };
    view! {
        <section class="card" aria-labelledby="part-title">
            <h2 id="part-title">"Your block of the model"</h2>
            <div class="strip" role="img" aria-label=label>
                <span class="box end">"Noise"</span>
                <span class="boxes">{boxes}</span>
                <span class="box end">"Guess"</span>
            </div>
            <p data-testid="layers-mine">{words}</p>
            <p>{task}</p>
            <p class="quiet">
                "Your device trains this block without waiting for any other. When the model writes, the blocks take \
                 turns, from pure noise on the left to a guess of the next token on the right."
            </p>
        </section>
    }
}

/// The layers of this device, in a row of all of them.
#[component]
fn LayerPart(tab: Tab) -> impl IntoView {
    let live = expect_context::<Live>();
    let model = Memo::new(move |_| -> Option<ModelSpec> {
        let own = tab.session.with(|session| session.run.as_ref().map(|run| run.model.clone()));
        own.or_else(|| live.run.with(|run| run.as_ref().map(|run| run.run.model.clone())))
    });
    let hops = Memo::new(move |_| tab.session.with(|session| session.hops.clone()));
    let mine = move || match model.get() {
        Some(model) => hops.with(|hops| mine(hops, &model)),
        None => String::new(),
    };
    view! {
        <section class="card" aria-labelledby="part-title">
            <h2 id="part-title">"Your part of the model"</h2>
            {move || model.get().map(|model| view! { <ModelStrip model hops/> })}
            <p data-testid="layers-mine">{mine}</p>
            <p class="quiet">
                "The embedding turns tokens into numbers, the layers work on them one after the other, and the head \
                 turns the result into a guess of the next token."
            </p>
        </section>
    }
}

fn mine(hops: &[Hop], model: &ModelSpec) -> String {
    if hops.is_empty() {
        return "None of it is on this device now.".to_owned();
    }
    let whole = [Hop {
        index: 0,
        part: protocol::spec::Part { embedding: true, first_layer: 0, end_layer: model.layers, head: true },
    }];
    format!(
        "Yours: {}. That is {} of the model's {} numbers.",
        words::part(hops, model),
        rough(words::part_parameters(hops, model)),
        rough(words::part_parameters(&whole, model)),
    )
}
