//! Says that what is on the page is old, when it is, and has the style sheet dim it.

use leptos::prelude::*;

use super::announce::Announce;
use crate::{browser::live::Live, text::pages};

/// The body of a page. Its attribute `data-link` tells the style sheet when live values are old.
#[component]
pub(crate) fn Main(children: Children) -> impl IntoView {
    let live = expect_context::<Live>();
    let has_run = Memo::new(move |_| live.run.with(Option::is_some));
    let words = move || {
        if live.unreadable.get() {
            return Some(pages::UNREADABLE.to_owned());
        }
        pages::link_lost(live.link.get(), live.silence(), has_run.get())
    };
    // Without the running count.
    let announced =
        Signal::derive(move || pages::link_lost(live.link.get(), 5.0, has_run.get()).unwrap_or_default());
    view! {
        <main class="page" id="main" data-link=move || live.link.get().name()>
            <div data-testid="link-lost">
                {move || words().map(|words| view! { <p class="notice" data-tone="warn">{words}</p> })}
            </div>
            <Announce text=announced/>
            {children()}
        </main>
    }
}
