//! Says that what is on the page is old, when it is.

use leptos::prelude::*;

use crate::live::{Link, Live};

#[component]
pub fn LinkLost() -> impl IntoView {
    let live = expect_context::<Live>();
    let words = move || match (live.link.get(), live.run.with(Option::is_some)) {
        (Link::Lost, true) => {
            Some("The coordinator cannot be reached. This page shows what it last heard and keeps trying.")
        }
        (Link::Lost, false) => {
            Some("The coordinator cannot be reached. It may be starting or gone; this page keeps trying.")
        }
        _ => None,
    };
    view! {
        <div role="status" aria-live="polite" data-testid="link-lost">
            {move || words().map(|words| view! { <p class="notice" data-tone="warn">{words}</p> })}
        </div>
    }
}
