//! What a run keeps on disk.
//!
//! ```text
//! <data dir>/run.toml            the run, with every field spelled out
//!            tokenizer.json      so that checkpoints can be read without the corpus
//!            organizer.token     bearer token of the organizer's link
//!            events.sqlite       append-only event log and ledger
//!            tokens/             the tokenised corpus, memory-mapped
//!            blobs/              parts of snapshots, published blocks and deltas, named by their hash
//!            snapshots/          manifests, of steps or of rounds; what has none does not count
//!            checkpoints/        whole models, as safetensors that transformers reads
//! ```

pub(crate) mod blob_store;
pub(crate) mod checkpoint;
pub(crate) mod data_dir;
pub(crate) mod event_log;
pub(crate) mod rounds;
pub(crate) mod snapshots;
pub(crate) mod watch;

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Write a file whole or not at all: to a temporary name, to disk, then under its own name.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    // The new name must survive a crash too.
    File::open(folder)?.sync_all()
}

/// Remove a file or folder that may be gone already.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
