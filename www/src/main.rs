//! The pages of Cohort: volunteer, organizer, observer. One program; the path tells which page it is.
//!
//! What needs no browser is compiled natively too, for the sake of its tests.
#![cfg_attr(not(web), allow(dead_code))]

mod block_words;
mod curve;
mod format;
mod scores;
mod session;
mod user_agent;
mod words;

#[cfg(web)]
mod api;
#[cfg(web)]
mod app;
#[cfg(web)]
mod browser;
#[cfg(web)]
mod chart;
#[cfg(web)]
mod components;
#[cfg(web)]
mod live;
#[cfg(web)]
mod pages;
#[cfg(web)]
mod run_facts;
#[cfg(web)]
mod tab;
#[cfg(web)]
mod volunteer;

#[cfg(web)]
fn main() {
    console_error_panic_hook::set_once();
    let document = leptos::prelude::document();
    // boot.js has told why this browser cannot train.
    if document.document_element().is_some_and(|html| html.has_attribute("data-lack")) {
        return;
    }
    // index.html shows words of its own until now, in case this program does not load.
    if let Some(waiting) = document.get_element_by_id("boot") {
        waiting.remove();
    }
    leptos::mount::mount_to_body(app::App);
}

#[cfg(not(web))]
fn main() {
    eprintln!(
        "The pages run in a browser. `cargo xtask run` builds them and a coordinator that serves them."
    );
}
