//! The model as a row of boxes: embedding, layers, head. Some of them marked.

use leptos::prelude::*;
use protocol::spec::{Hop, ModelSpec};

use crate::words;

#[component]
pub fn ModelStrip(
    #[prop(into)] model: Signal<ModelSpec>,
    /// What is marked.
    #[prop(into)]
    hops: Signal<Vec<Hop>>,
) -> impl IntoView {
    let label = move || {
        let model = model.get();
        format!(
            "The model: an embedding, {} layers and a head. Marked: {}.",
            model.layers,
            hops.with(|hops| words::part(hops, &model))
        )
    };
    let boxes = move || {
        let layers = model.with(|model| model.layers);
        let layer = move |layer: u32| {
            let mine = move || {
                hops.with(|h| h.iter().any(|h| (h.part.first_layer..h.part.end_layer).contains(&layer)))
            };
            view! { <span class="box" data-mine=move || mine().to_string()><span>{layer + 1}</span></span> }
        };
        let embedding = move || hops.with(|hops| hops.iter().any(|hop| hop.part.embedding));
        let head = move || hops.with(|hops| hops.iter().any(|hop| hop.part.head));
        view! {
            <span class="box end" data-mine=move || embedding().to_string()>"Embedding"</span>
            <span class="boxes">{(0..layers).map(layer).collect_view()}</span>
            <span class="box end" data-mine=move || head().to_string()>"Head"</span>
        }
    };
    view! { <div class="strip" role="img" aria-label=label>{boxes}</div> }
}
