//! Block mode: what a worker keeps from round to round and over connections.

use std::{collections::HashMap, rc::Rc};

use engine::{
    Device,
    denoiser::{BlockError, Replica},
};
use protocol::{
    blob::{BlobHash, BlobRef},
    delta::{self, DeltaEncoding, DeltaError, DeltaHeader},
    message::{DeltaOutcome, RoundTask},
    spec::RunSpec,
};

/// The replica with AdamW's moments, what top-k has not sent yet, and the files of the weights.
#[derive(Default)]
pub(crate) struct BlockState {
    /// The run that all of it belongs to.
    run: Option<RunSpec>,
    replica: Option<Replica>,
    /// What top-k has not sent yet, one list for each tensor; empty for none.
    residuals: Vec<Vec<f32>>,
    /// The last delta, until its outcome is known.
    awaited: Option<Awaited>,
    files: HashMap<BlobHash, Rc<Vec<u8>>>,
}

/// A delta whose outcome is not known.
struct Awaited {
    round: u64,
    block: u32,
    /// The residuals before it was made.
    residuals: Vec<Vec<f32>>,
}

impl BlockState {
    /// The run that is joined: what belongs to another one goes.
    pub(crate) fn joined(&mut self, run: &RunSpec) {
        if self.run.as_ref() != Some(run) {
            *self = BlockState { run: Some(run.clone()), ..BlockState::default() };
        }
    }

    /// A file fetched before.
    pub(crate) fn file(&self, blob: BlobRef) -> Option<Rc<Vec<u8>>> {
        self.files.get(&blob.hash).cloned()
    }

    /// Keeps these files, and no others.
    pub(crate) fn keep(&mut self, files: &[(BlobRef, Rc<Vec<u8>>)]) {
        self.files = files.iter().map(|(blob, bytes)| (blob.hash, bytes.clone())).collect();
    }

    /// The replica with the weights of a round; its moments stay unless the task wants them fresh. `files` are the
    /// block's and the table's.
    ///
    /// # Errors
    /// When the run has no such block or the files do not hold it.
    pub(crate) fn prepare(
        &mut self,
        run: &RunSpec,
        task: &RoundTask,
        files: &[&[u8]],
        device: &Device,
    ) -> Result<&mut Replica, BlockError> {
        // The outcome of an accepted delta comes before the next round: the last one was not taken, or not sent.
        if let Some(awaited) = self.awaited.take() {
            self.residuals = awaited.residuals;
        }
        let replica = match self.replica.take().filter(|replica| replica.block() == task.block) {
            Some(mut replica) => {
                replica.rebase(files, task.fresh)?;
                replica
            }
            None => {
                self.residuals.clear();
                Replica::import(run, task.block, files, device)?
            }
        };
        if task.fresh {
            self.residuals.clear();
        }
        Ok(self.replica.insert(replica))
    }

    /// The replica of the round in progress.
    ///
    /// # Errors
    /// When there is none, which is so only without a round.
    pub(crate) fn replica(&mut self) -> Result<&mut Replica, BlockError> {
        self.replica.as_mut().ok_or(BlockError::NotBlockMode)
    }

    /// A delta as a file. With top-k, what earlier rounds did not send is added, and what this one does not send is kept.
    ///
    /// # Errors
    /// [`DeltaError`], when a number is not finite.
    pub(crate) fn encode(&mut self, header: &DeltaHeader, delta: &[Vec<f32>]) -> Result<Vec<u8>, DeltaError> {
        let DeltaHeader { round, block, .. } = *header;
        self.awaited = Some(Awaited { round, block, residuals: self.residuals.clone() });
        match header.encoding {
            DeltaEncoding::TopK { .. } => delta::encode(header, delta, Some(&mut self.residuals)),
            _ => delta::encode(header, delta, None),
        }
    }

    /// What became of a delta: what a refused one took from the residuals goes back there. False when it is not the
    /// outcome that is awaited.
    pub(crate) fn outcome(&mut self, outcome: &DeltaOutcome) -> bool {
        let own = |awaited: &mut Awaited| (awaited.round, awaited.block) == (outcome.round, outcome.block);
        let Some(awaited) = self.awaited.take_if(own) else { return false };
        if outcome.refused.is_some() {
            self.residuals = awaited.residuals;
        }
        true
    }

    /// Forgets the replica, whose state can no longer be relied on.
    pub(crate) fn forget_replica(&mut self) {
        self.replica = None;
        self.residuals.clear();
        self.awaited = None;
    }
}
