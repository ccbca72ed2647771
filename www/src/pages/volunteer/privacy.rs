//! What leaves this device.

use leptos::prelude::*;

use super::me::Me;
use crate::text::volunteer as text;

/// The card.
#[component]
pub(crate) fn PrivacyCard() -> impl IntoView {
    let me = expect_context::<Me>();
    let hops = Memo::new(move |_| me.tab.session.with(|session| session.hops.clone()));
    let now = move || {
        let mode = me.mode.get().text();
        hops.with(|hops| (!hops.is_empty()).then(|| mode.sends(hops)))
    };
    view! {
        <section class="card" aria-labelledby="privacy-title">
            <h2 id="privacy-title">{text::PRIVACY}</h2>
            <p data-testid="leaves">{now}</p>
            <ul class="list">
                <li data-testid="leaves-numbers">{move || me.mode.get().text().numbers_sent()}</li>
                <li>{text::ABOUT_DEVICE}</li>
                <li>{text::NO_FILES}</li>
            </ul>
            <p class="quiet">{move || me.mode.get().text().text_received()}</p>
        </section>
    }
}
