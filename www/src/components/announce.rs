//! What a screen reader is told as it changes, and not too often.

use leptos::prelude::*;

use crate::{browser::live::Live, state::announce::Announcer};

/// A live region that nobody sees; the same words stand elsewhere, where they may change as often as they like.
#[component]
pub(crate) fn Announce(#[prop(into)] text: Signal<String>) -> impl IntoView {
    let clock = expect_context::<Live>().clock;
    let announcer = StoredValue::new(Announcer::default());
    let said = RwSignal::new(String::new());
    Effect::new(move |_| {
        let (text, now) = (text.get(), clock.get());
        let news = announcer.try_update_value(|announcer| announcer.offer(&text, now)).flatten();
        if let Some(news) = news {
            said.set(news);
        }
    });
    view! { <p class="hidden" role="status" aria-live="polite">{said}</p> }
}
