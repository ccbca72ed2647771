//! A round in progress: who works on what, and what has come of it.

use std::{collections::BTreeMap, time::Duration};

use protocol::{blob::BlobRef, delta::DeltaRefusal, message::DeltaReady, worker_id::WorkerId};

use crate::record::Traffic;

/// How far a worker has come with its share.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Progress {
    /// Nothing has come of it yet.
    Working,
    /// Its delta is being looked at.
    Checking(DeltaReady),
    /// Its delta counts.
    Accepted(Accepted),
    /// Nothing more is expected of it in this round.
    Out,
}

/// An accepted delta.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Accepted {
    pub(super) blob: BlobRef,
    /// Length of the delta.
    pub(super) norm: f64,
    pub(super) cross_entropy: f64,
    pub(super) traffic: Traffic,
}

/// One worker's share.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Share {
    pub(super) block: u32,
    /// Its number in the round.
    pub(super) slot: u32,
    /// The round that AdamW's moments go back to; None where a round in between did not count.
    pub(super) moments_since: Option<u64>,
    pub(super) progress: Progress,
    /// Seconds from the opening to its delta.
    pub(super) arrived: Option<f64>,
}

/// A round that is open, or whose deltas are being averaged.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RoundInProgress {
    pub(super) round: u64,
    pub(super) opened: Duration,
    /// Seconds it may take.
    pub(super) deadline: f64,
    /// Everybody's share.
    pub(super) shares: BTreeMap<WorkerId, Share>,
}

impl RoundInProgress {
    /// Seconds since it opened.
    pub(super) fn elapsed(&self, now: Duration) -> f64 {
        now.saturating_sub(self.opened).as_secs_f64()
    }

    /// Takes a worker's word that its delta lies in the store.
    pub(super) fn ready(
        &mut self,
        now: Duration,
        worker: WorkerId,
        ready: DeltaReady,
    ) -> Result<(), DeltaRefusal> {
        let (round, elapsed) = (self.round, self.elapsed(now));
        if ready.round < round {
            return Err(DeltaRefusal::Late { round: ready.round });
        }
        if ready.round > round {
            return Err(DeltaRefusal::Stale { found: ready.round, expected: round });
        }
        let replica = self.shares.get_mut(&worker).ok_or(DeltaRefusal::NotAssigned { round })?;
        if ready.block != replica.block {
            return Err(DeltaRefusal::OtherBlock { found: ready.block, expected: replica.block });
        }
        if replica.progress != Progress::Working {
            return Err(DeltaRefusal::Twice { round });
        }
        replica.arrived = Some(elapsed);
        replica.progress = Progress::Checking(ready);
        Ok(())
    }

    /// Nothing more is to be expected of this worker; what it has sent counts all the same. Returns whether it was
    /// still at work.
    pub(super) fn give_up(&mut self, worker: WorkerId) -> bool {
        match self.shares.get_mut(&worker) {
            Some(share) if share.progress == Progress::Working => {
                share.progress = Progress::Out;
                true
            }
            _ => false,
        }
    }

    /// Deltas that count.
    pub(super) fn accepted(&self) -> impl Iterator<Item = (WorkerId, &Share, &Accepted)> {
        self.shares.iter().filter_map(|(worker, replica)| match &replica.progress {
            Progress::Accepted(accepted) => Some((*worker, replica, accepted)),
            _ => None,
        })
    }

    /// Whether nobody is at work any more.
    pub(super) fn is_settled(&self) -> bool {
        let settled = |share: &Share| matches!(share.progress, Progress::Accepted(_) | Progress::Out);
        self.shares.values().all(settled)
    }

    /// Whether all have left or failed before they sent anything.
    pub(super) fn came_to_nothing(&self) -> bool {
        self.shares.values().all(|share| share.progress == Progress::Out && share.arrived.is_none())
    }

    /// Whether a delta is being looked at: the round waits for that.
    pub(super) fn is_checking(&self) -> bool {
        self.shares.values().any(|replica| matches!(replica.progress, Progress::Checking(_)))
    }

    /// Accepted deltas over replicas.
    pub(super) fn participation(&self) -> f64 {
        self.accepted().count() as f64 / self.shares.len().max(1) as f64
    }
}
