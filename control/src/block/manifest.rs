//! What a coordinator needs to go on from a round.

use protocol::{blob::BlobRef, published::Published, spec::RunSpec, worker_id::WorkerId};
use serde::{Deserialize, Serialize};

/// One accepted piece of work of the round that led to the published weights: enough to do it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Who did it.
    pub worker: WorkerId,
    /// The block it changes.
    pub block: u32,
    /// The replica's number in the round: with the round, the key of its windows and noise.
    pub slot: u32,
    /// The round that AdamW's moments go back to; None where a round in between did not count.
    pub moments_since: Option<u64>,
    /// The delta's file.
    pub delta: BlobRef,
}

/// What makes a round count: written after all its blobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundManifest {
    /// What is trained.
    pub run: RunSpec,
    /// The weights, and how many rounds they have seen.
    pub published: Published,
    /// Rounds that changed each block.
    pub updates: Vec<u64>,
    /// Sums over the run up to here.
    pub totals: Totals,
    /// Accepted in the round before.
    pub work: Vec<Work>,
}

/// Sums over the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Replicas of all rounds.
    pub assigned: u64,
    /// Deltas averaged into the weights.
    pub accepted: u64,
    /// Deltas not taken.
    pub refused: u64,
    /// Bytes to workers, for accepted deltas.
    pub bytes_down: u64,
    /// Bytes from workers, for accepted deltas.
    pub bytes_up: u64,
}
