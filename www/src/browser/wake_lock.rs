//! Keeping the screen on while the device trains: a phone that goes dark stops the tab.

use leptos::prelude::*;
use wasm_bindgen::{JsCast, JsValue, prelude::Closure};
use wasm_bindgen_futures::spawn_local;

use super::js::{self, window};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    Off,
    On,
    /// The browser's words, for people.
    Denied(String),
}

/// The one screen lock of the page. The browser drops it when the tab is hidden; this takes it again.
#[derive(Clone, Copy)]
pub struct WakeLock {
    pub hold: RwSignal<Hold>,
    wanted: RwSignal<bool>,
    sentinel: StoredValue<Option<JsValue>, LocalStorage>,
}

impl WakeLock {
    pub fn new() -> Self {
        let lock = WakeLock {
            hold: RwSignal::new(Hold::Off),
            wanted: RwSignal::new(false),
            sentinel: StoredValue::new_local(None),
        };
        let shown = Closure::<dyn FnMut()>::new(move || {
            if lock.wanted.get_untracked() && is_visible() {
                lock.take();
            }
        });
        let document: &web_sys::EventTarget = &document();
        let _ = document.add_event_listener_with_callback("visibilitychange", shown.as_ref().unchecked_ref());
        // The page has one of these for as long as it lives.
        shown.forget();
        lock
    }

    pub fn want(self, wanted: bool) {
        if self.wanted.get_untracked() == wanted {
            return;
        }
        self.wanted.set(wanted);
        if wanted { self.take() } else { self.give_back() }
    }

    fn take(self) {
        let Some(api) = js::get(&window().navigator(), "wakeLock") else {
            return self.hold.set(Hold::Denied("this browser does not offer it here".to_owned()));
        };
        spawn_local(async move {
            match js::call_async(&api, "request", Some(&"screen".into())).await {
                Ok(sentinel) => {
                    self.sentinel.set_value(Some(sentinel));
                    self.hold.set(Hold::On);
                    if !self.wanted.get_untracked() {
                        self.give_back();
                    }
                }
                Err(words) => self.hold.set(Hold::Denied(words)),
            }
        });
    }

    fn give_back(self) {
        if let Some(sentinel) = self.sentinel.try_update_value(Option::take).flatten() {
            js::call(&sentinel, "release", None);
        }
        self.hold.set(Hold::Off);
    }
}

fn is_visible() -> bool {
    document().visibility_state() == web_sys::VisibilityState::Visible
}
