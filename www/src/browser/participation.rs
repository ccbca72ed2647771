//! Whether this tab took part when the page was last left, so that a reload does not end its participation.

use super::js::window;

const KEY: &str = "cohort.taking-part";

/// Whether the tab took part and nobody has stopped it.
pub(crate) fn recall() -> bool {
    let storage = window().session_storage().ok().flatten();
    storage.is_some_and(|storage| storage.get_item(KEY).ok().flatten().is_some())
}

/// Remembers it for as long as the tab is open.
pub(crate) fn keep(takes_part: bool) {
    let Ok(Some(storage)) = window().session_storage() else { return };
    // A browser that stores nothing waits for the button after a reload.
    let _ = if takes_part { storage.set_item(KEY, "1") } else { storage.remove_item(KEY) };
}
