//! Why a delta is refused. A person reads the words, the ledger the name.

use super::DeltaError;
use crate::worker_id::WorkerId;

/// Why a delta is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DeltaRefusal {
    /// The round had closed.
    #[error("it came after round {round} had closed: its time was up, and the weights have moved on")]
    Late {
        /// The round of the delta.
        round: u64,
    },
    /// Of an earlier round, or of one to come.
    #[error("it is for round {found}, and round {expected} is open: train from the weights of that round")]
    Stale {
        /// The round of the delta.
        found: u64,
        /// The open one.
        expected: u64,
    },
    /// The worker has no part in the round.
    #[error("this worker has nothing to do in round {round}")]
    NotAssigned {
        /// The open round.
        round: u64,
    },
    /// Of another block than the worker's.
    #[error("it is for block {found}, and this worker was given block {expected}")]
    OtherBlock {
        /// The block of the delta.
        found: u32,
        /// The worker's.
        expected: u32,
    },
    /// The worker's second delta of the round.
    #[error("this worker has already sent its delta of round {round}")]
    Twice {
        /// The open round.
        round: u64,
    },
    /// The store does not have the file, or not whole.
    #[error("its file cannot be had from the store ({why}): upload it before saying that it is ready")]
    Unreadable {
        /// What the store says.
        why: String,
    },
    /// The file is not a delta of what was asked for.
    #[error(transparent)]
    Malformed(#[from] DeltaError),
    /// Equal to a delta that has come before.
    #[error("the same numbers came from {of} before: send what this worker has learned itself")]
    Copy {
        /// Who sent it first.
        of: WorkerId,
    },
    /// Nothing but zeros.
    #[error("it is all zeros: nothing was learned")]
    Empty,
    /// Much longer than the others.
    #[error(
        "its length is {norm:.3e}, {ratio:.0} times the others' {typical:.3e}: at most {limit} times is taken"
    )]
    Norm {
        /// Euclidean norm of the delta.
        norm: f64,
        /// Median norm of the others.
        typical: f64,
        /// The one over the other.
        ratio: f64,
        /// The largest ratio that is taken.
        limit: f64,
    },
}

impl DeltaRefusal {
    /// Which refusal it is, for counters and the ledger.
    pub fn name(&self) -> &'static str {
        match self {
            DeltaRefusal::Late { .. } => "delta_late",
            DeltaRefusal::Stale { .. } => "delta_stale",
            DeltaRefusal::NotAssigned { .. } => "delta_not_assigned",
            DeltaRefusal::OtherBlock { .. } => "delta_other_block",
            DeltaRefusal::Twice { .. } => "delta_twice",
            DeltaRefusal::Unreadable { .. } => "delta_unreadable",
            DeltaRefusal::Malformed(_) => "delta_malformed",
            DeltaRefusal::Copy { .. } => "delta_copy",
            DeltaRefusal::Empty => "delta_empty",
            DeltaRefusal::Norm { .. } => "delta_norm",
        }
    }
}
