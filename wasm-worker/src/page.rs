//! To the page.

use protocol::{message::DeviceStatus, tab::SessionEvent};
use wasm_bindgen::JsValue;
use worker::platform;

use crate::{js::worker_scope, status};

/// Tells the page what happens in the session.
pub(crate) struct Reporter;

impl platform::Reporter for Reporter {
    fn tell(&self, event: SessionEvent) {
        tell(event);
    }

    fn status(&self) -> DeviceStatus {
        status::now()
    }
}

/// Tells the page what happened, as JSON text.
pub(crate) fn tell(event: SessionEvent) {
    if let Ok(text) = serde_json::to_string(&event) {
        // Text can always be cloned over.
        let _ = worker_scope().post_message(&JsValue::from_str(&text));
    }
}
