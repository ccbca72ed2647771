//! A state in one or two words, with a colour that never speaks alone.

use leptos::prelude::*;

use crate::text::Tone;

/// The words and how they feel.
#[component]
pub(crate) fn Chip(#[prop(into)] text: Signal<String>, #[prop(into)] tone: Signal<Tone>) -> impl IntoView {
    view! { <span class="chip" data-tone=move || tone.get().name()>{text}</span> }
}
