//! Keeping the keyboard's focus on the page: an element that goes away with it leaves it at the very top.

use wasm_bindgen::JsCast;
use web_sys::HtmlElement;

use super::js::window;

/// Moves the focus to the element of this id, which needs `tabindex="-1"` unless it can have the focus anyway.
pub(crate) fn to(id: &str) {
    let element = window().document().and_then(|document| document.get_element_by_id(id));
    if let Some(element) = element.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
        // An element that cannot have the focus leaves it where it is.
        let _ = element.focus();
    }
}
