//! The top of every page: what this is, which run, where else to go.

use leptos::prelude::*;

use crate::{
    browser::{live::Live, served::Served},
    text::{pages as text, run},
};

/// A page that the header links to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Volunteer,
    Organizer,
    Watch,
    Playground,
}

/// The header of the page `here`.
#[component]
pub(crate) fn Header(
    here: Place,
    /// Open other pages in a new tab: leaving this one would end the training.
    #[prop(into, default = Signal::stored(false))]
    keep_open: Signal<bool>,
) -> impl IntoView {
    let live = expect_context::<Live>();
    let served = expect_context::<Served>();
    let name = move || live.run.with(|view| view.as_ref().map_or(text::UNNAMED.to_owned(), run::name));
    let link = move |place: Place, href: &'static str, text: &'static str| {
        let current = (place == here).then_some("page");
        let target = move || (place != here && keep_open.get()).then_some("_blank");
        view! { <a href=href aria-current=current target=target rel="noopener">{text}</a> }
    };
    view! {
        <header class="header">
            <div class="header-in">
                <a class="brand" href="./" aria-label=text::BRAND_LABEL target=move || keep_open.get().then_some("_blank")>
                    <svg class="brand-mark" viewBox="0 0 32 32" aria-hidden="true">
                        <path d="M9 16h14" />
                        <rect x="2" y="11" width="8" height="10" rx="2.5" />
                        <rect class="mine" x="12" y="8" width="8" height="16" rx="2.5" />
                        <rect x="22" y="11" width="8" height="10" rx="2.5" />
                    </svg>
                    <span>{text::BRAND}</span>
                </a>
                <p class="header-run">
                    <span class="dot" data-link=move || live.link.get().name() aria-hidden="true"></span>
                    <span>{name}</span>
                </p>
                <nav aria-label=text::PAGES>
                    {link(Place::Volunteer, "./", text::TAKE_PART)}
                    {link(Place::Watch, "watch", text::WATCH)}
                    {move || {
                        (here == Place::Playground || served.is_offered())
                            .then(|| link(Place::Playground, "playground", text::TRY))
                    }}
                    {(here == Place::Organizer).then(|| link(Place::Organizer, "organizer", text::ORGANIZE))}
                </nav>
            </div>
        </header>
    }
}
