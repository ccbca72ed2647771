//! The published weights of a round, and what a coordinator needs to go on from them.

use protocol::{
    blob::{BlobHash, BlobRef},
    spec::RunSpec,
};
use serde::{Deserialize, Serialize};

use crate::run::event::WorkerId;

/// Where the weights lie that a round starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Rounds these weights have seen: their version.
    pub round: u64,
    /// One per block.
    pub blocks: Vec<BlobRef>,
    /// The shared table.
    pub table: BlobRef,
    /// Momentum of the outer step and what the aggregator goes on from; None where it needs nothing.
    pub outer: Option<BlobRef>,
}

impl Published {
    /// Hash of all weights and of the outer step's state.
    pub fn state(&self) -> BlobHash {
        let parts = self.blocks.iter().chain([&self.table]).chain(&self.outer);
        BlobHash::of(&parts.flat_map(|blob| blob.hash.0).collect::<Vec<u8>>())
    }

    /// Every blob named here.
    pub fn blobs(&self) -> impl Iterator<Item = BlobRef> + '_ {
        self.blocks.iter().chain([&self.table]).chain(&self.outer).copied()
    }
}

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
