//! What a replica's work is drawn from: with these numbers anybody can do it again.

use crate::mix::mix;

/// Key of the noise of the replica at `slot` in `round`.
pub fn noise(run_seed: u64, round: u64, slot: u32) -> u64 {
    mix(mix(mix(run_seed ^ 0x006e_6f69_7365) ^ round) ^ u64::from(slot))
}

/// Key of the noise of evaluations: the same after every round, so that curves differ by the weights alone.
pub fn evaluation(run_seed: u64, batch: u32) -> u64 {
    mix(mix(run_seed ^ 0x6576_616c) ^ u64::from(batch))
}
