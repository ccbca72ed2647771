//! The organizer's token. It comes in the address's fragment, which browsers do not send to any server.

use wasm_bindgen::{JsCast, JsValue, prelude::Closure};

use super::js::window;

const KEY: &str = "cohort.organizer-token";

/// The token of this tab, if it has one.
pub(crate) fn recall() -> Option<String> {
    from_address().or_else(|| window().session_storage().ok().flatten()?.get_item(KEY).ok().flatten())
}

/// Forgets a token that is not accepted.
pub(crate) fn forget() {
    if let Ok(Some(storage)) = window().session_storage() {
        let _ = storage.remove_item(KEY);
    }
}

/// Calls `then` with a token that is put into the address of this open tab, for as long as the page lives.
pub(crate) fn on_new(then: impl Fn(String) + 'static) {
    let changed = Closure::<dyn FnMut()>::new(move || {
        if let Some(token) = from_address() {
            then(token);
        }
    });
    let _ = window().add_event_listener_with_callback("hashchange", changed.as_ref().unchecked_ref());
    changed.forget();
}

/// Takes the token out of the address bar, so that a copied address or somebody who looks on does not get it.
fn from_address() -> Option<String> {
    let window = window();
    let hash = window.location().hash().unwrap_or_default();
    let token = hash.strip_prefix("#token=").filter(|token| !token.is_empty())?;
    if let Ok(Some(storage)) = window.session_storage() {
        // A browser that stores nothing still has the token until the tab is closed or reloaded.
        let _ = storage.set_item(KEY, token);
    }
    if let (Ok(path), Ok(query)) = (window.location().pathname(), window.location().search())
        && let Ok(history) = window.history()
    {
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&format!("{path}{query}")));
    }
    Some(token.to_owned())
}
