//! The observer's page: everything the organizer sees, nothing to press.

use leptos::prelude::*;

use super::dashboard::{Figures, RunPanel, watch_title};
use crate::components::{
    header::{Header, Place},
    link_lost::LinkLost,
    workers::Workers,
};

#[component]
pub fn Watch() -> impl IntoView {
    watch_title();
    view! {
        <Header here=Place::Watch/>
        <main class="page" id="main">
            <LinkLost/>
            <RunPanel heading="Watching the run">
                <p class="quiet">"This page only shows. " <a href="/">"Take part"</a> " with this device."</p>
            </RunPanel>
            <Figures/>
            <Workers remove=None/>
        </main>
    }
}
