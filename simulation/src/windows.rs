//! Where token windows come from: the caller's data.

use control::pipeline::Half;
use protocol::message::Address;

/// Cuts windows of token ids from the data of a run, from numbers alone: the same numbers give the same windows.
pub trait Windows {
    /// Pipeline mode: ids [N, T] of a pass of a run with so many micro-batches in a step.
    fn pass(&mut self, to: &Address, half: Half, micro_batches: u32) -> Vec<u32>;

    /// Block mode: ids [H, N, T + 1] of the replica at `slot` in `round`, for H = `steps` local steps.
    fn round(&mut self, round: u64, slot: u32, steps: u32) -> Vec<u32>;

    /// Block mode: ids [N, T + 1] of a batch of the held-out split.
    fn evaluation(&mut self, batch: u32) -> Vec<u32>;
}
