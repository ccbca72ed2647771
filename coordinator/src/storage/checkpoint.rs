//! Whole models on disk, in the layout that `transformers` reads: `model.safetensors` and `config.json`,
//! with our tokenizer beside them, and transformers' own files of it where there are any.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use engine::checkpoint::{Checkpoint, CheckpointError};
use protocol::spec::ModelSpec;

use super::{HALF, TOKENIZER, data_dir::DataDir, remove, sync_folder, write_atomically};
use crate::{
    data::tokenizer::SavedTokenizer,
    model_folder::{self, CONFIG, WEIGHTS},
    run_folder,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("the checkpoint {path} cannot be written: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("the parts of the snapshot do not make a model: {0}")]
    Parts(#[from] CheckpointError),
}

/// Name of a checkpoint's folder.
pub(crate) fn folder_name(steps_done: u64) -> String {
    format!("step-{steps_done:06}")
}

/// Write a checkpoint from the parts of a snapshot, and forget all but the newest `keep`.
pub(crate) fn export<B: AsRef<[u8]>>(
    checkpoints: &Path,
    steps_done: u64,
    model: &ModelSpec,
    parts: &[B],
    tokenizer: &SavedTokenizer,
    keep: usize,
) -> Result<PathBuf, ExportError> {
    let Checkpoint { config, weights } = Checkpoint::from_snapshot(model, parts)?;
    write(checkpoints, steps_done, &config, &weights, tokenizer, keep)
}

/// Write a checkpoint of this config and these weights, and forget all but the newest `keep`.
///
/// The folder appears under its name only when it is whole.
pub(crate) fn write(
    checkpoints: &Path,
    steps_done: u64,
    config: &str,
    weights: &[u8],
    tokenizer: &SavedTokenizer,
    keep: usize,
) -> Result<PathBuf, ExportError> {
    let place = checkpoints.join(folder_name(steps_done));
    let failed = |source| ExportError::Write { path: place.clone(), source };
    let half = tempfile::Builder::new().prefix(HALF).tempdir_in(checkpoints).map_err(failed)?;
    let write = |name: &str, bytes: &[u8]| write_atomically(&half.path().join(name), bytes).map_err(failed);
    write(WEIGHTS, weights)?;
    write(CONFIG, config.as_bytes())?;
    let tokenizer = serde_json::to_vec_pretty(tokenizer).map_err(|e| failed(e.into()))?;
    write(model_folder::TOKENIZER, &tokenizer)?;
    // What the run has of transformers' own tokenizer files.
    if let Some(files) = checkpoints.parent().map(|run| run.join(TOKENIZER)).filter(|files| files.exists()) {
        for entry in fs::read_dir(files).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let bytes = fs::read(entry.path()).map_err(failed)?;
            write_atomically(&half.path().join(entry.file_name()), &bytes).map_err(failed)?;
        }
    }
    // One of work that is done again stays whole, under another name, until the new one is there.
    let old = tempfile::Builder::new().prefix(HALF).tempdir_in(checkpoints).map_err(failed)?;
    if place.exists() {
        fs::rename(&place, old.path().join("old")).map_err(failed)?;
    }
    fs::rename(half.keep(), &place).and_then(|()| sync_folder(checkpoints)).map_err(failed)?;
    drop(old);
    prune(checkpoints, keep).map_err(failed)?;
    Ok(place)
}

/// All checkpoints, oldest first.
pub(crate) fn list(checkpoints: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders: Vec<(u64, PathBuf)> = fs::read_dir(checkpoints)?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let step = path.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()?;
            Some((step, path))
        })
        .collect();
    folders.sort();
    Ok(folders.into_iter().map(|(_, path)| path).collect())
}

/// The folder of a checkpoint, or for that of a run its newest.
///
/// # Errors
/// A run without a checkpoint, in words.
pub(crate) fn of_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    if !run_folder::is_of_a_run(folder) {
        return Ok(folder.to_path_buf());
    }
    let (_, run) = DataDir::look_into(folder)?;
    list(&run.checkpoints())?.pop().with_context(|| {
        format!("{} has no checkpoint yet; wait for the first, or let the run go on", folder.display())
    })
}

fn prune(checkpoints: &Path, keep: usize) -> io::Result<()> {
    let folders = list(checkpoints)?;
    folders[..folders.len().saturating_sub(keep.max(1))].iter().try_for_each(|old| remove(old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_has_the_runs_tokenizer_files_and_replaces_one_of_the_same_step() {
        let run = tempfile::tempdir().unwrap();
        let checkpoints = run.path().join("checkpoints");
        fs::create_dir(&checkpoints).unwrap();
        fs::create_dir(run.path().join(TOKENIZER)).unwrap();
        fs::write(run.path().join(TOKENIZER).join("vocab.json"), "{}").unwrap();
        for weights in ["first", "again"] {
            let place = write(&checkpoints, 7, "{}", weights.as_bytes(), &SavedTokenizer::Bytes, 3).unwrap();
            assert_eq!(fs::read(place.join("model.safetensors")).unwrap(), weights.as_bytes());
            assert_eq!(fs::read(place.join("vocab.json")).unwrap(), b"{}");
        }
        assert_eq!(fs::read_dir(&checkpoints).unwrap().count(), 1, "nothing is left of the first");
    }
}
