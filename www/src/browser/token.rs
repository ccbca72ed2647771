//! The organizer's token. It comes in the address's fragment, which browsers do not send to any server.

use wasm_bindgen::JsValue;

use super::js::window;

const KEY: &str = "cohort.organizer-token";

/// The token of this tab, if it has one. Moves it out of the address bar, so that a copied address or a look
/// over the shoulder does not give it away.
pub fn take() -> Option<String> {
    let window = window();
    let hash = window.location().hash().unwrap_or_default();
    let storage = window.session_storage().ok().flatten();
    let Some(token) = hash.strip_prefix("#token=").filter(|token| !token.is_empty()) else {
        return storage?.get_item(KEY).ok().flatten();
    };
    if let Some(storage) = storage {
        // A browser that keeps nothing still has the token until the tab is closed or reloaded.
        let _ = storage.set_item(KEY, token);
    }
    if let (Ok(path), Ok(query)) = (window.location().pathname(), window.location().search())
        && let Ok(history) = window.history()
    {
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&format!("{path}{query}")));
    }
    Some(token.to_owned())
}
