//! The page's clock.

use std::time::Duration;

use leptos::prelude::*;

/// How often what depends on the time is worked out again.
const TICK: Duration = Duration::from_millis(500);

/// Seconds since 1970. It goes on while the device sleeps, as deadlines must.
pub(crate) fn now() -> f64 {
    js_sys::Date::now() / 1e3
}

/// The time, for what shows a running count.
pub(crate) fn ticking() -> ReadSignal<f64> {
    let (read, write) = signal(now());
    // Without timers the counts stand still; nothing else does.
    let _ = set_interval_with_handle(move || write.set(now()), TICK);
    read
}
