//! What a run keeps on disk.
//!
//! ```text
//! <data dir>/coordinator.lock    locked by the coordinator that works here; its process id
//!            run.toml            the run, with every field spelled out
//!            text.blake3         hash of the text, in hexadecimal
//!            tokenizer.json      so that checkpoints can be read without the corpus
//!            tokenizer/          GPT-2's BPE files, if that is the tokenizer, as transformers calls them
//!            organizer.token     bearer token of the organizer's link
//!            events.sqlite       event log and ledger; old rows are thinned
//!            tokens/             the tokenised corpus, memory-mapped
//!            blobs/              parts of snapshots, published blocks and deltas, named by their hash
//!            snapshots/          manifests, of steps or of rounds; what has none does not count
//!            checkpoints/        whole models, as safetensors that transformers reads
//! ```

pub(crate) mod beginning;
pub(crate) mod blob_store;
pub(crate) mod checkpoint;
#[cfg(test)]
mod crash_consistency;
pub(crate) mod data_dir;
pub(crate) mod event_log;
mod event_rows;
mod manifests;
pub(crate) mod rounds;
mod run_dataset;
mod same_run;
pub(crate) mod snapshots;
pub(crate) mod watch;

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Writes a file whole or not at all: to a temporary name, to disk, then under its own name.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    sync_folder(folder)
}

/// Has the names in a folder on disk, so that a new one survives a crash of the system.
///
/// # Errors
/// The disk's.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    // Windows cannot open a folder, and syncs names with their files.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Remove a file or folder that may be gone already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Name of the folder of the tokenizer's own files, beside that of the checkpoints.
pub(crate) const TOKENIZER: &str = "tokenizer";

/// Begins the names of folders that are being written.
pub(crate) const HALF: &str = ".half-";
/// Begins the names of files that are being written: what `tempfile` gives them.
const TEMPORARY: &str = ".tmp";

/// Removes what was being written in `folder` when an earlier process was killed. Only while nobody writes there.
pub(crate) fn sweep_temporary(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if [HALF, TEMPORARY].iter().any(|begin| name.as_encoded_bytes().starts_with(begin.as_bytes())) {
            // What cannot be removed only takes up room.
            let _ = remove(&entry.path());
        }
    }
}
