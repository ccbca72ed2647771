//! The one place where a page takes different parts for different modes.

use leptos::prelude::*;

use crate::{browser::live::Live, state::mode::Mode};

/// Shows one of them once the mode is known, and keeps room for it until then.
#[component]
pub(crate) fn ByMode(
    pipeline: fn() -> AnyView,
    block: fn() -> AnyView,
    serve: fn() -> AnyView,
) -> impl IntoView {
    let mode = expect_context::<Live>().mode;
    move || match mode.get() {
        Some(Mode::Pipeline) => pipeline(),
        Some(Mode::Block) => block(),
        Some(Mode::Serve) => serve(),
        None => view! { <div class="pending"></div> }.into_any(),
    }
}
