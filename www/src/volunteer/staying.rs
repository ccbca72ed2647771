//! What happens when the tab is left, and the screen that stays on meanwhile.

use leptos::prelude::*;

use crate::{
    browser::wake_lock::{Hold, WakeLock},
    live::Live,
    run_facts,
};

#[component]
pub fn StayingCard(wake_lock: WakeLock, keep_awake: RwSignal<bool>, active: Memo<bool>) -> impl IntoView {
    let words = move || match (active.get(), keep_awake.get(), wake_lock.hold.get()) {
        (_, _, Hold::Denied(why)) => {
            format!("The screen could not be kept on: {why}. A device that falls asleep drops out.")
        }
        (true, true, Hold::On) => "The screen stays on while this device takes part.".to_owned(),
        (true, false, _) => "The screen may go dark. A phone then stops training within seconds.".to_owned(),
        _ => "While this device takes part, the screen stays on.".to_owned(),
    };
    let block_mode = run_facts::block_mode(expect_context::<Live>());
    let breaks = move || {
        if block_mode.get() == Some(true) {
            "Nothing breaks then: the round goes on with the other devices, and this one joins again when you come back."
        } else {
            "Nothing breaks then: your part goes to another device, and this one joins again when you come back."
        }
    };
    view! {
        <section class="card" aria-labelledby="staying-title">
            <h2 id="staying-title">"While it runs"</h2>
            <label class="check">
                <input
                    type="checkbox"
                    data-testid="keep-awake"
                    prop:checked=keep_awake
                    on:change=move |event| keep_awake.set(event_target_checked(&event))
                />
                <span>"Keep the screen on"</span>
            </label>
            <p class="quiet" role="status" aria-live="polite" data-testid="wake-lock">{words}</p>
            <ul class="list">
                <li>"Keep this tab in front. Browsers slow down tabs in the background, and freeze busy ones after a few minutes."</li>
                <li>"A phone stops the tab seconds after you leave it or lock the screen."</li>
                <li>{breaks}</li>
                <li>"Training uses power. Plug in a laptop or a phone if it is to run for long."</li>
            </ul>
        </section>
    }
}
