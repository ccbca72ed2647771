//! Keeping the screen on while the device trains: a phone that goes dark stops the tab.

use leptos::prelude::*;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::spawn_local;

use super::{
    js::{self, window},
    visibility,
};
use crate::text::device::{NoScreenLock, ScreenLock};

/// The one screen lock of the page. The browser drops it when the tab is hidden; this takes it again.
#[derive(Clone, Copy)]
pub(crate) struct WakeLock {
    /// What has become of it.
    pub(crate) hold: RwSignal<ScreenLock>,
    wanted: RwSignal<bool>,
    sentinel: StoredValue<Option<JsValue>, LocalStorage>,
}

impl WakeLock {
    /// Not held; there is one for as long as the page lives.
    pub(crate) fn new() -> Self {
        let lock = WakeLock {
            hold: RwSignal::new(ScreenLock::Off),
            wanted: RwSignal::new(false),
            sentinel: StoredValue::new_local(None),
        };
        visibility::on_change(move |visible| {
            if visible && lock.wanted.get_untracked() {
                lock.take();
            }
        });
        lock
    }

    /// Takes it or gives it back.
    pub(crate) fn want(self, wanted: bool) {
        if self.wanted.get_untracked() == wanted {
            return;
        }
        self.wanted.set(wanted);
        if wanted { self.take() } else { self.give_back() }
    }

    fn take(self) {
        let Some(api) = js::get(&window().navigator(), "wakeLock") else {
            return self.hold.set(ScreenLock::Denied(NoScreenLock::NotOffered));
        };
        spawn_local(async move {
            match js::try_call_async(&api, "request", Some(&"screen".into())).await {
                Ok(sentinel) => {
                    self.sentinel.set_value(Some(sentinel));
                    self.hold.set(ScreenLock::On);
                    if !self.wanted.get_untracked() {
                        self.give_back();
                    }
                }
                Err(error) => self.hold.set(ScreenLock::Denied(match js::text(&error, "name").as_deref() {
                    Some("NotAllowedError") => NoScreenLock::NotAllowed,
                    _ => NoScreenLock::Other,
                })),
            }
        });
    }

    fn give_back(self) {
        if let Some(sentinel) = self.sentinel.try_update_value(Option::take).flatten() {
            js::call(&sentinel, "release", None);
        }
        self.hold.set(ScreenLock::Off);
    }
}
