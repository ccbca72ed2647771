//! The tab's title, so that a tab in the background still tells how it fares.

use super::js::window;

/// Sets it, where it is another.
pub(crate) fn set(text: &str) {
    if let Some(document) = window().document()
        && document.title() != text
    {
        document.set_title(text);
    }
}
