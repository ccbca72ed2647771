//! The name somebody gave this device, kept for the next visit.

use super::js::window;

const KEY: &str = "cohort.name";

/// Characters that a name may have.
pub(crate) const LONGEST: usize = 64;

/// The name from an earlier visit.
pub(crate) fn recall() -> Option<String> {
    let storage = window().local_storage().ok().flatten()?;
    storage.get_item(KEY).ok().flatten().filter(|name| !name.is_empty())
}

/// Keeps the name for the next visit.
pub(crate) fn keep(name: &str) {
    if let Ok(Some(storage)) = window().local_storage() {
        // A browser that stores nothing asks again next time.
        let _ = storage.set_item(KEY, name);
    }
}

/// Without blanks at the ends, and no longer than the coordinator takes.
pub(crate) fn tidy(name: &str) -> String {
    name.trim().chars().take(LONGEST).collect()
}
