//! The published weights of a round of block mode.

use serde::{Deserialize, Serialize};

use crate::blob::{BlobHash, BlobRef};

/// Where the weights lie that a round starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Rounds these weights have seen: their version.
    pub round: u64,
    /// One per block.
    pub blocks: Vec<BlobRef>,
    /// The shared table.
    pub table: BlobRef,
    /// State of the outer step and of the aggregator; None where they need nothing.
    pub outer: Option<BlobRef>,
}

impl Published {
    /// Hash of all weights and of the outer step's state.
    pub fn state(&self) -> BlobHash {
        BlobHash::of(&self.blobs().flat_map(|blob| blob.hash.0).collect::<Vec<u8>>())
    }

    /// Every blob named here.
    pub fn blobs(&self) -> impl Iterator<Item = BlobRef> + '_ {
        self.weights().chain(self.outer)
    }

    /// The blobs of the weights: every block's, then the table's.
    pub fn weights(&self) -> impl Iterator<Item = BlobRef> + '_ {
        self.blocks.iter().copied().chain([self.table])
    }
}
