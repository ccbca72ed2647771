//! Token windows of block mode: T + 1 tokens each, so that every token read has its target beside it.

use crate::data::windows::{Batch, TrainWindows, WindowShape};

/// Windows [H, N, T + 1] of the replica at `slot` in `round`, all from numbers alone.
///
/// Each of `slots` replicas has windows of its own: none is read twice before all have been read once.
pub fn of_round(
    train: &mut TrainWindows,
    round: u64,
    slot: u32,
    steps: u32,
    local_steps: u32,
    slots: u32,
) -> Vec<u32> {
    train.set_micro_batches(slots * local_steps);
    let shape = train.shape();
    let batch = |step| whole(&train.batch(round, slot * local_steps + step), shape);
    (0..steps).flat_map(batch).collect()
}

/// Windows [N, T + 1] of a batch.
pub fn whole(batch: &Batch, shape: WindowShape) -> Vec<u32> {
    let context = shape.context as usize;
    let rows = batch.inputs.chunks_exact(context).zip(batch.targets.chunks_exact(context));
    rows.flat_map(|(inputs, targets)| inputs.iter().chain(targets.last())).copied().collect()
}
