//! An address that is no page; the coordinator answers most of these before this program is even loaded.

use leptos::prelude::*;

use crate::text::pages as text;

/// The page.
#[component]
pub(crate) fn NotFound() -> impl IntoView {
    view! {
        <main class="page" id="main">
            <h1>{text::NO_PAGE}</h1>
            <p>{text::NO_PAGE_DETAIL} <a href="./">{text::START_PAGE}</a> "."</p>
        </main>
    }
}
