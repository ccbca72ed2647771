//! The weights that a run begins with, as the snapshot of a run that has done no step.

use std::path::Path;

use anyhow::ensure;
use control::pipeline::{Manifest, SnapshotPart};
use protocol::{spec::RunSpec, worker_id::WorkerId};

use super::{blob_store::BlobStore, snapshots};
use crate::{
    data::tokenizer::Tokenizer,
    model_folder::{self, FolderModel},
};

/// Nobody: the coordinator itself has given these parts.
const ORGANIZER: WorkerId = WorkerId(0);

/// Stores the model in `folder` in parts, and writes their manifest to `snapshots`.
///
/// # Errors
/// A folder whose model is not the run's, or a disk that does not take it; in words.
pub(crate) async fn from_folder(
    folder: &Path,
    run: &RunSpec,
    tokenizer: &Tokenizer,
    blobs: &BlobStore,
    snapshots: &Path,
) -> anyhow::Result<()> {
    let place = folder.to_path_buf();
    let read = move || -> anyhow::Result<_> {
        let FolderModel { model, checkpoint, tokenizer } = model_folder::read(&place)?;
        let (parts, state) = (checkpoint.parts()?, engine::checkpoint::state_hash(&[&checkpoint.weights])?);
        Ok((model, tokenizer, parts, state.to_string()))
    };
    let (model, own, parts, state) = tokio::task::spawn_blocking(read).await??;
    ensure!(
        own.hash() == tokenizer.hash() || same_but_for_end_of_text(&own, tokenizer),
        "model.from: the tokens of {} are not those that [data] makes of the text; leave data.tokenizer and \
         data.tokenizer_files out, and with the tokenizer \"characters\" give a text of the same characters",
        folder.display()
    );
    ensure!(
        model == run.model,
        "model.from: the model in {} has other shapes than the run; leave the shapes in [model] out",
        folder.display()
    );
    let mut stored = Vec::with_capacity(parts.len());
    for (part, bytes) in parts {
        let blob = blobs.store(bytes.into()).await?;
        stored.push(SnapshotPart { blob, holds: vec![part], worker: ORGANIZER });
    }
    let micro_batches = run.micro_batches;
    let manifest = Manifest { steps_done: 0, epoch: 0, model, micro_batches, state, parts: stored };
    snapshots::write(snapshots, &manifest)?;
    tracing::info!("the run begins with the weights in {}", folder.display());
    Ok(())
}

/// Whether two BPEs have the same files, and only one takes `<|endoftext|>` in a text for its token.
fn same_but_for_end_of_text(a: &Tokenizer, b: &Tokenizer) -> bool {
    matches!((a.as_gpt2(), b.as_gpt2()), (Some(a), Some(b)) if a.hash() == b.hash())
}
