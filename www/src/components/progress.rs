//! How far the run is.

use leptos::prelude::*;

use crate::{
    browser::live::Live,
    state::facts::share_done,
    text::{figures, numbers::percent},
};

/// A bar.
#[component]
pub(crate) fn Progress() -> impl IntoView {
    let live = expect_context::<Live>();
    let share = move || live.run.with(|run| run.as_ref().map_or(0.0, share_done));
    view! {
        <progress class="progress" max="1" value=move || share().to_string() aria-label=figures::PROGRESS>
            {move || percent(share())}
        </progress>
    }
}
