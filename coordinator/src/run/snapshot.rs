//! A consistent cut of all weights and optimizer state: collected from the stages, then described by a
//! manifest that is written last.

use std::collections::BTreeMap;

use protocol::{blob::BlobRef, spec::ModelSpec};
use serde::{Deserialize, Serialize};

use super::event::WorkerId;

/// Names the parts of a snapshot. What has no manifest on disk does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Optimizer steps the weights have seen; the data cursor of the next step.
    pub steps_done: u64,
    pub epoch: u64,
    pub model: ModelSpec,
    /// One part a stage, in the order of the hops.
    pub parts: Vec<BlobRef>,
}

/// A snapshot whose parts are still on their way.
#[derive(Debug, Clone)]
pub struct Collecting {
    pub steps_done: u64,
    parts: BTreeMap<WorkerId, Option<BlobRef>>,
}

impl Collecting {
    pub fn new(steps_done: u64, workers: impl IntoIterator<Item = WorkerId>) -> Self {
        Self { steps_done, parts: workers.into_iter().map(|w| (w, None)).collect() }
    }

    /// Note a part. True when it is one we waited for.
    pub fn part(&mut self, worker: WorkerId, steps_done: u64, blob: BlobRef) -> bool {
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

    /// The manifest, once every part is there. `order` lists the stages from first to last.
    pub fn complete(&self, epoch: u64, model: &ModelSpec, order: &[WorkerId]) -> Option<Manifest> {
        let parts = order.iter().map(|w| self.parts.get(w).copied().flatten()).collect::<Option<Vec<_>>>()?;
        Some(Manifest { steps_done: self.steps_done, epoch, model: model.clone(), parts })
    }
}
