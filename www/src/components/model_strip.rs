//! The model as a row of boxes: embedding, layers, head. Some of them marked.

use leptos::prelude::*;
use protocol::spec::{Hop, ModelSpec};

use crate::text::pipeline as text;

/// The row of boxes, with those of `hops` marked.
#[component]
pub(crate) fn ModelStrip(
    #[prop(into)] model: Signal<ModelSpec>,
    /// What is marked.
    #[prop(into)]
    hops: Signal<Vec<Hop>>,
) -> impl IntoView {
    let label = move || hops.with(|hops| model.with(|model| text::strip_label(hops, model)));
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
            <span class="box end" data-mine=move || embedding().to_string()>{text::EMBEDDING}</span>
            <span class="boxes">{(0..layers).map(layer).collect_view()}</span>
            <span class="box end" data-mine=move || head().to_string()>{text::HEAD}</span>
        }
    };
    view! { <div class="strip" role="img" aria-label=label>{boxes}</div> }
}
