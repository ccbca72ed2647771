//! How a folder that holds a run is recognised: by the files that [`crate::storage`] writes last.

use std::path::{Path, PathBuf};

/// The run, with every field spelled out.
pub(crate) fn config_file(root: &Path) -> PathBuf {
    root.join("run.toml")
}

/// The run's tokenizer.
pub(crate) fn tokenizer_file(root: &Path) -> PathBuf {
    root.join("tokenizer.json")
}

/// Whether a folder holds a run. One that only has a run.toml of the organizer's own does not.
pub(crate) fn is_of_a_run(root: &Path) -> bool {
    config_file(root).exists() && tokenizer_file(root).exists()
}
