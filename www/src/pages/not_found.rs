//! An address that is no page; the coordinator answers most of these before this program is even loaded.

use leptos::prelude::*;

#[component]
pub fn NotFound() -> impl IntoView {
    view! {
        <main class="page" id="main">
            <h1>"There is no such page"</h1>
            <p>"Check the address. The run itself is at " <a href="/">"the start page"</a> "."</p>
        </main>
    }
}
