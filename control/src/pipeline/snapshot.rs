//! A consistent cut of all weights and optimizer state: collected from the stages, then described by a
//! manifest that is written last.

use std::{collections::BTreeMap, time::Duration};

use protocol::{
    blob::BlobRef,
    spec::{Hop, ModelSpec, Part},
    worker_id::WorkerId,
};
use serde::{Deserialize, Serialize};

use super::plan::Stage;

/// What one stage gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    /// Weights and moments of the stage.
    pub blob: BlobRef,
    /// The parts of the model in it.
    pub holds: Vec<Part>,
    /// Who gave it.
    pub worker: WorkerId,
}

impl SnapshotPart {
    /// Whether something in it is of these hops.
    fn serves(&self, hops: &[Hop], tied: bool) -> bool {
        let shares = |a: &Part, b: &Part| {
            (a.embedding && b.embedding)
                || (a.head && b.head)
                // A tied head is the embedding's table.
                || (tied && ((a.embedding && b.head) || (a.head && b.embedding)))
                || a.first_layer.max(b.first_layer) < a.end_layer.min(b.end_layer)
        };
        self.holds.iter().any(|held| hops.iter().any(|hop| shares(held, &hop.part)))
    }
}

/// Names the parts of a snapshot. What has no manifest on disk does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Optimizer steps the weights have seen; the data cursor of the next step.
    pub steps_done: u64,
    /// Number of the plan it is of.
    pub epoch: u64,
    /// Shapes of the model.
    pub model: ModelSpec,
    /// M of the run.
    pub micro_batches: u32,
    /// Hash of all weights and moments, the same however the model is split; known once the parts have been read.
    pub state: String,
    /// One part a stage, in the order of the stages.
    pub parts: Vec<SnapshotPart>,
}

impl Manifest {
    /// The blobs in which the weights of these hops lie.
    pub fn blobs_for(&self, hops: &[Hop]) -> Vec<BlobRef> {
        let tied = self.model.tie_embeddings;
        self.parts.iter().filter(|part| part.serves(hops, tied)).map(|part| part.blob).collect()
    }
}

/// A snapshot whose parts are still on their way.
#[derive(Debug, Clone)]
pub(super) struct Collecting {
    /// Steps its weights have seen.
    pub(super) steps_done: u64,
    /// When it was asked for.
    pub(super) since: Duration,
    parts: BTreeMap<WorkerId, Option<BlobRef>>,
}

impl Collecting {
    /// No part is there yet.
    pub(super) fn new(steps_done: u64, since: Duration, workers: impl IntoIterator<Item = WorkerId>) -> Self {
        Self { steps_done, since, parts: workers.into_iter().map(|w| (w, None)).collect() }
    }

    /// A worker whose part is still missing.
    pub(super) fn missing(&self) -> Option<WorkerId> {
        self.parts.iter().find(|(_, part)| part.is_none()).map(|(worker, _)| *worker)
    }

    /// Note a part. True when it is one we waited for.
    pub(super) fn part(&mut self, worker: WorkerId, steps_done: u64, blob: BlobRef) -> bool {
        if steps_done != self.steps_done {
            return false;
        }
        match self.parts.get_mut(&worker) {
            Some(slot @ None) => {
                *slot = Some(blob);
                true
            }
            _ => false,
        }
    }

    /// The manifest, once every part is there.
    pub(super) fn complete(
        &self,
        epoch: u64,
        model: &ModelSpec,
        micro_batches: u32,
        stages: &[Stage],
    ) -> Option<Manifest> {
        let part = |stage: &Stage| {
            let blob = self.parts.get(&stage.worker).copied().flatten()?;
            Some(SnapshotPart {
                blob,
                holds: stage.hops.iter().map(|hop| hop.part.clone()).collect(),
                worker: stage.worker,
            })
        };
        let parts = stages.iter().map(part).collect::<Option<Vec<_>>>()?;
        Some(Manifest {
            steps_done: self.steps_done,
            epoch,
            model: model.clone(),
            micro_batches,
            state: String::new(),
            parts,
        })
    }
}
