//! What pipeline mode alone has done: token batches cut and sent, routes set, snapshots verified and written.

use std::{sync::Arc, time::Duration};

use control::{
    Run,
    pipeline::{Action, Event, Half, Manifest, Pipeline},
};
use protocol::{
    message::{Address, Down, Pass, Targets, TensorFrame, Tokens},
    spec::Moments,
    tensor::{CodecError, TensorMeta, encode_tokens},
    worker_id::WorkerId,
};
use tokio::sync::mpsc;
use tracing::Instrument;

use super::{
    interpreter::{ModeIo, send},
    snapshot_parts::{BadPart, verify_parts},
};
use crate::{
    data::{
        tokenizer::SavedTokenizer,
        windows::{Batch, TrainWindows, ValidationWindows},
    },
    server::Shared,
    storage::{checkpoint, data_dir::DataDir, snapshots},
};

/// The IO of pipeline mode.
pub(crate) struct PipelineIo {
    pub(crate) shared: Arc<Shared>,
    pub(crate) told: mpsc::UnboundedSender<Event>,
    /// None where nothing is trained.
    pub(crate) train: Option<TrainWindows>,
    /// None where the held-out split is never measured.
    pub(crate) validation: Option<ValidationWindows>,
    pub(crate) data_dir: DataDir,
    /// Snapshots and checkpoints to keep.
    pub(crate) keep: usize,
    /// A part that no manifest names after so long is of a snapshot that was given up.
    pub(crate) leftover: Duration,
    pub(crate) tokenizer: SavedTokenizer,
    /// Of the open step: what is done for it is logged within.
    pub(crate) step: tracing::Span,
}

impl ModeIo for PipelineIo {
    type Mode = Pipeline;

    fn act(&mut self, action: Action, run: &Run<Pipeline>) -> anyhow::Result<()> {
        let _within = self.step.clone().entered();
        match action {
            Action::SendBatch { worker, to, half } => {
                let (tensor, payload) = self.windows(run.micro_batches(), to, half)?;
                let frame = TensorFrame { to, tensor };
                let message: Down = match half {
                    Half::Inputs => Tokens(frame).into(),
                    Half::Targets => Targets(frame).into(),
                };
                send(&self.shared, worker, message, &payload)?;
            }
            Action::Route(relay) => self.shared.hub.route(relay),
            Action::OpenStep { step } => {
                self.step = tracing::info_span!(parent: None, "step", step);
                self.step.in_scope(|| tracing::debug!("opened"));
                self.shared.hub.open_step(step);
            }
            Action::Commit(manifest) => self.commit(manifest, run.core().settings.run.moments),
            Action::Prune { accepted } => self.prune(accepted),
            Action::Decode { worker, of, last } => {
                if let Some((decode, payload)) = self.shared.serving.traversals.decode(worker, of, last) {
                    send(&self.shared, worker, decode, &payload)?;
                }
            }
            Action::Traversed { number } => self.shared.serving.traversals.traversed(number),
            Action::CachesLost => self.shared.serving.traversals.lost(),
            Action::Texts(asking) => self.shared.serving.traversals.can_be_asked(asking),
            Action::FindOwing => {
                let _ = self.told.send(Event::Owing(self.shared.hub.owing()));
            }
        }
        Ok(())
    }
}

/// Why a snapshot could not be kept.
#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    #[error("{worker} gave a part that cannot be used: {why}")]
    BadPart { worker: WorkerId, why: String },
    #[error("{0:#}")]
    Storage(anyhow::Error),
}

impl PipelineIo {
    /// The token windows of a pass, encoded.
    fn windows(
        &mut self,
        micro_batches: u32,
        to: Address,
        half: Half,
    ) -> Result<(TensorMeta, Vec<u8>), CodecError> {
        let Some(train) = &mut self.train else { return encode_tokens(&[], &[0]) };
        train.set_micro_batches(micro_batches);
        let shape = train.shape();
        let Batch { inputs, targets } = match (to.pass, &self.validation) {
            (Pass::Train { micro_batch }, _) => train.batch(to.step, micro_batch),
            (Pass::Validate { batch }, Some(validation)) => validation.batch(u64::from(batch)),
            (Pass::Validate { .. }, None) => Batch { inputs: vec![], targets: vec![] },
        };
        let tokens = match half {
            Half::Inputs => inputs,
            Half::Targets => targets,
        };
        encode_tokens(&tokens, &[shape.sequences, shape.context])
    }

    /// Verifies the parts, writes the checkpoint and then the manifest, off this thread; the run hears when it is done.
    fn commit(&self, manifest: Manifest, moments: Moments) {
        let (shared, told) = (self.shared.clone(), self.told.clone());
        let (data_dir, keep, tokenizer) = (self.data_dir.clone(), self.keep, self.tokenizer.clone());
        tokio::spawn(
            async move {
                let steps_done = manifest.steps_done;
                let event = match write_snapshot(&shared, data_dir, keep, tokenizer, manifest, moments).await
                {
                    Ok(state) => Event::Committed { steps_done, state },
                    Err(error) => {
                        tracing::error!("the snapshot of step {steps_done} could not be kept: {error}");
                        let culprit = match &error {
                            SnapshotError::BadPart { worker, .. } => Some(*worker),
                            SnapshotError::Storage(error) => {
                                shared.storage.failed(error.as_ref());
                                None
                            }
                        };
                        Event::CommitFailed { steps_done, why: error.to_string(), culprit }
                    }
                };
                let _ = told.send(event);
            }
            .in_current_span(),
        );
    }

    /// Forgets old snapshots, and parts of those that never became whole or were done again, off this thread. What
    /// cannot be removed only takes up room.
    fn prune(&self, accepted: u64) {
        let (shared, folder, keep) = (self.shared.clone(), self.data_dir.snapshots(), self.keep);
        let leftover = self.leftover;
        tokio::spawn(async move {
            let pruned = async {
                let prune = move || snapshots::prune(&folder, keep, accepted);
                let (unnamed, named) = tokio::task::spawn_blocking(prune).await??;
                for blob in unnamed {
                    shared.blobs.delete(blob).await?;
                }
                shared.blobs.sweep(&named, leftover).await?;
                anyhow::Ok(())
            };
            if let Err(e) = pruned.await {
                tracing::warn!("old snapshots could not be removed: {e:#}");
            }
        });
    }
}

async fn write_snapshot(
    shared: &Shared,
    data_dir: DataDir,
    keep: usize,
    tokenizer: SavedTokenizer,
    manifest: Manifest,
    moments: Moments,
) -> Result<String, SnapshotError> {
    let storage = |error: anyhow::Error| SnapshotError::Storage(error);
    let mut parts = Vec::with_capacity(manifest.parts.len());
    for part in &manifest.parts {
        let length = shared.blobs.length(part.blob.hash).await.map_err(|e| storage(e.into()))?;
        if length != Some(part.blob.bytes) {
            let why = format!("it has {length:?} bytes in the store, {} were announced", part.blob.bytes);
            return Err(SnapshotError::BadPart { worker: part.worker, why });
        }
        parts.push(shared.blobs.fetch(part.blob).await.map_err(|e| storage(e.into()))?);
    }
    let written = tokio::task::spawn_blocking(move || {
        let mut manifest = manifest;
        verify_parts(&manifest, moments, &parts)
            .map_err(|BadPart { worker, why }| SnapshotError::BadPart { worker, why })?;
        let written = || -> anyhow::Result<String> {
            manifest.state = engine::checkpoint::state_hash(&parts)?.to_string();
            let place = checkpoint::export(
                &data_dir.checkpoints(),
                manifest.steps_done,
                &manifest.model,
                &parts,
                &tokenizer,
                keep,
            )?;
            tracing::info!("checkpoint {}", place.display());
            snapshots::write(&data_dir.snapshots(), &manifest)?;
            Ok(manifest.state)
        };
        written().map_err(SnapshotError::Storage)
    });
    written.await.map_err(|error| storage(error.into()))?
}
