//! What happens when the tab is left, and the screen that stays on meanwhile.

use leptos::prelude::*;

use super::me::Me;
use crate::{
    browser::wake_lock::WakeLock,
    text::{device, volunteer as text},
};

/// The card.
#[component]
pub(crate) fn StayingCard(wake_lock: WakeLock, keep_awake: RwSignal<bool>) -> impl IntoView {
    let me = expect_context::<Me>();
    let words = move || device::screen(me.active.get(), keep_awake.get(), wake_lock.hold.get());
    view! {
        <section class="card" aria-labelledby="staying-title">
            <h2 id="staying-title">{text::STAYING}</h2>
            <label class="check">
                <input
                    type="checkbox"
                    data-testid="keep-awake"
                    prop:checked=keep_awake
                    on:change=move |event| keep_awake.set(event_target_checked(&event))
                />
                <span>{text::KEEP_SCREEN_ON}</span>
            </label>
            <p class="quiet" role="status" aria-live="polite" data-testid="wake-lock">{words}</p>
            <ul class="list">
                <li>{text::KEEP_IN_FRONT}</li>
                <li>{text::PHONE}</li>
                <li>{move || me.mode.get().text().absence()}</li>
                <li>{text::POWER}</li>
            </ul>
        </section>
    }
}
