//! Whether the page is in sight.

use wasm_bindgen::{JsCast, prelude::Closure};

use super::js::window;

/// Whether the page is in sight now.
pub(crate) fn is_visible() -> bool {
    leptos::prelude::document().visibility_state() == web_sys::VisibilityState::Visible
}

/// Calls `then` each time the page comes in sight or goes out of it, for as long as the page lives.
pub(crate) fn on_change(then: impl Fn(bool) + 'static) {
    let changed = Closure::<dyn FnMut()>::new(move || then(is_visible()));
    let document: &web_sys::EventTarget = &leptos::prelude::document();
    let _ = document.add_event_listener_with_callback("visibilitychange", changed.as_ref().unchecked_ref());
    changed.forget();
}

/// Calls `then` when the page is closed, reloaded or put aside.
pub(crate) fn on_leave(then: impl Fn() + 'static) {
    let left = Closure::<dyn FnMut()>::new(then);
    let _ = window().add_event_listener_with_callback("pagehide", left.as_ref().unchecked_ref());
    left.forget();
}

/// Calls `then` when the page is shown again after it was put aside, still alive.
pub(crate) fn on_return(then: impl Fn() + 'static) {
    let shown = Closure::<dyn FnMut()>::new(then);
    let _ = window().add_event_listener_with_callback("pageshow", shown.as_ref().unchecked_ref());
    shown.forget();
}
