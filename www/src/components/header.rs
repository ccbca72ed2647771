//! The top of every page: what this is, which run, where else to go.

use leptos::prelude::*;

use crate::live::{Link, Live};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Volunteer,
    Organizer,
    Watch,
}

#[component]
pub fn Header(
    here: Place,
    /// Open other pages in a new tab: leaving this one would end the training.
    #[prop(into, default = Signal::stored(false))]
    keep_open: Signal<bool>,
) -> impl IntoView {
    let live = expect_context::<Live>();
    let name = move || live.run.with(|run| run.as_ref().map(|run| run.run.name.clone()));
    let link = move |place: Place, href: &'static str, text: &'static str| {
        let current = if place == here { Some("page") } else { None };
        let target = move || (place != here && keep_open.get()).then_some("_blank");
        view! { <a href=href aria-current=current target=target rel="noopener">{text}</a> }
    };
    view! {
        <header class="header">
            <div class="header-in">
                <a class="brand" href="/" aria-label="Cohort, start page" target=move || keep_open.get().then_some("_blank")>
                    <svg class="brand-mark" viewBox="0 0 32 32" aria-hidden="true">
                        <path d="M9 16h14" />
                        <rect x="2" y="11" width="8" height="10" rx="2.5" />
                        <rect class="mine" x="12" y="8" width="8" height="16" rx="2.5" />
                        <rect x="22" y="11" width="8" height="10" rx="2.5" />
                    </svg>
                    <span>"Cohort"</span>
                </a>
                <p class="header-run">
                    <span class="dot" data-link=move || live_name(live.link.get()) aria-hidden="true"></span>
                    <span>{move || name().unwrap_or_else(|| "…".to_owned())}</span>
                </p>
                <nav aria-label="Pages">
                    {link(Place::Volunteer, "/", "Take part")}
                    {link(Place::Watch, "/watch", "Watch")}
                    {(here == Place::Organizer).then(|| link(Place::Organizer, "/organizer", "Organize"))}
                </nav>
            </div>
        </header>
    }
}

fn live_name(link: Link) -> &'static str {
    match link {
        Link::Opening => "opening",
        Link::Live => "live",
        Link::Lost => "lost",
    }
}
