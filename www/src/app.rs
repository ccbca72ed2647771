//! Which page the path means, and what all pages share.

use leptos::prelude::*;

use crate::{
    browser::{address, live::Live, served::Served},
    pages,
};

/// The page that the path names.
#[component]
pub(crate) fn App() -> impl IntoView {
    let live = Live::start();
    provide_context(live);
    provide_context(Served::start(live));
    match address::page().as_str() {
        "" | "index.html" => view! { <pages::volunteer::Volunteer/> }.into_any(),
        "organizer" => view! { <pages::organizer::Organizer/> }.into_any(),
        "playground" => view! { <pages::playground::Playground/> }.into_any(),
        "watch" => view! { <pages::watch::Watch/> }.into_any(),
        _ => view! { <pages::not_found::NotFound/> }.into_any(),
    }
}
