//! The observer's page: everything the organizer sees, nothing to press.

use leptos::prelude::*;

use super::dashboard::{Figures, RunPanel, watch_title};
use crate::{
    browser::live::Live,
    components::{
        header::{Header, Place},
        main_area::Main,
        workers::Workers,
    },
    state::facts::is_over,
    text::pages as text,
};

/// The page.
#[component]
pub(crate) fn Watch() -> impl IntoView {
    watch_title();
    let phase = expect_context::<Live>().phase;
    let join = move || {
        (!phase.get().is_some_and(is_over))
            .then(|| view! { <a href="./">{text::TAKE_PART}</a> {text::WATCH_JOIN} })
    };
    view! {
        <Header here=Place::Watch/>
        <Main>
            <RunPanel heading=text::WATCH_HEADING>
                <p class="quiet">{text::WATCH_ONLY} {join}</p>
            </RunPanel>
            <Figures/>
            <Workers remove=Signal::stored(None)/>
        </Main>
    }
}
