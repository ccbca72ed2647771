//! What a coordinator needs to go on from a round.

use protocol::{blob::BlobRef, published::Published, spec::RunSpec, worker_id::WorkerId};
use serde::{Deserialize, Serialize};


/// One accepted piece of work of the round that led to the published weights: enough to do it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub worker: WorkerId,
    pub block: u32,
    /// The replica's number in the round: with the round, the key of its windows and noise.
    pub slot: u32,
    /// The round that AdamW's moments go back to; None where a round in between did not count.
    pub moments_since: Option<u64>,
    pub delta: BlobRef,
}

/// What makes a round count: written after all its blobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundManifest {
    pub run: RunSpec,
    pub published: Published,
    /// Rounds that changed each block.
    pub updates: Vec<u64>,
    pub totals: Totals,
    /// Accepted in the round before.
    pub work: Vec<Work>,
}

/// Sums over the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    pub assigned: u64,
    pub accepted: u64,
    pub refused: u64,
    pub bytes_down: u64,
    pub bytes_up: u64,
}
