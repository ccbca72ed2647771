//! The pages of Cohort: volunteer, organizer, observer. One program; the path tells which page it is.
//!
//! | module | is |
//! |---|---|
//! | `state` | what is shown, worked out from the run's view, this device's session and the link; pure |
//! | `text` | every word that a person reads, by topic; pure |
//! | `browser` | the coordinator's interface, the Web Worker, and what else the page asks of the browser |
//! | `chart` | the curves, drawn by uPlot |
//! | `components` | parts of pages |
//! | `pages` | one page a file |
//!
//! `state` and `text` need no browser and are compiled natively too, for the sake of their tests.
#![deny(missing_docs, unreachable_pub)]
#![cfg_attr(not(web), allow(dead_code))]

mod state;
mod text;

#[cfg(web)]
#[allow(unreachable_pub, reason = "the component macro makes functions public")]
mod app;
#[cfg(web)]
mod browser;
#[cfg(web)]
#[allow(unreachable_pub, reason = "the component macro makes functions public")]
mod chart;
#[cfg(web)]
#[allow(unreachable_pub, reason = "the component macro makes functions public")]
mod components;
#[cfg(web)]
#[allow(unreachable_pub, reason = "the component macro makes functions public")]
mod pages;

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
