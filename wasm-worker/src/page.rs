//! To the page.

use protocol::tab::SessionEvent;
use wasm_bindgen::JsValue;

use crate::js::worker_scope;

/// Tell the page what happened, as JSON text.
pub fn tell(event: SessionEvent) {
    if let Ok(text) = serde_json::to_string(&event) {
        // Text can always be cloned over.
        let _ = worker_scope().post_message(&JsValue::from_str(&text));
    }
}
