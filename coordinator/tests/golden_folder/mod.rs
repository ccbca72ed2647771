//! Where the golden vectors lie.

use std::path::PathBuf;

/// A file of the folder named by COHORT_GOLDEN, by default the repo's own.
pub fn read_json(name: &str) -> serde_json::Value {
    let folder =
        std::env::var_os("COHORT_GOLDEN").map_or_else(|| PathBuf::from("../tests/golden"), PathBuf::from);
    let path = folder.join(name);
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{} is not JSON: {e}", path.display()))
}
