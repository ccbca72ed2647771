//! Which part of the model this device holds.

use leptos::prelude::*;
use protocol::spec::{Hop, ModelSpec};

use crate::{components::model_strip::ModelStrip, format::rough, live::Live, tab::Tab, words};

#[component]
pub fn PartCard(tab: Tab) -> impl IntoView {
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
