//! Copying text.

use super::js;

/// Whether the text is in the clipboard now; browsers offer it only over https or on localhost.
pub(crate) async fn copy(text: &str) -> bool {
    let Some(clipboard) = js::get(&js::window().navigator(), "clipboard") else { return false };
    js::try_call_async(&clipboard, "writeText", Some(&text.into())).await.is_ok()
}
