//! How far the run is.

use leptos::prelude::*;

use crate::{format::percent, live::Live};

#[component]
pub fn Progress() -> impl IntoView {
    let live = expect_context::<Live>();
    let share = move || {
        live.run.with(|run| run.as_ref().map_or(0.0, |run| run.step as f64 / run.steps.max(1) as f64))
    };
    view! {
        <progress class="progress" max="1" value=move || share().to_string() aria-label="Progress of the run">
            {move || percent(share())}
        </progress>
    }
}
