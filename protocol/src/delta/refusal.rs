//! Why a delta is not taken. A person reads the words, the ledger the name.

use super::DeltaError;
use crate::worker_id::WorkerId;

/// Why a delta is not taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DeltaRefusal {
    #[error("it came after round {round} had closed: its time was up, and the weights have moved on")]
    Late { round: u64 },
    #[error("it is for round {found}, and round {expected} is open: train from the weights of that round")]
    Stale { found: u64, expected: u64 },
    #[error("this worker has nothing to do in round {round}")]
    NotAssigned { round: u64 },
    #[error("it is for block {found}, and this worker was given block {expected}")]
    OtherBlock { found: u32, expected: u32 },
    #[error("this worker has already sent its delta of round {round}")]
    Twice { round: u64 },
    #[error("its file cannot be had from the store ({why}): upload it before saying that it is ready")]
    Unreadable { why: String },
    #[error(transparent)]
    Malformed(#[from] DeltaError),
    #[error("the same numbers came from {of} before: send what this worker has learned itself")]
    Copy { of: WorkerId },
    #[error("it is all zeros: nothing was learned")]
    Empty,
    #[error(
        "its length is {norm:.3e}, {ratio:.0} times the others' {typical:.3e}: at most {limit} times is taken"
    )]
    Norm { norm: f64, typical: f64, ratio: f64, limit: f64 },
}

impl DeltaRefusal {
    /// What kind of refusal it is, for counters.
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
