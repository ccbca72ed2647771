//! Block mode: a worker's part in one round, from the windows to the delta.

use std::rc::Rc;

use engine::{
    Device,
    denoiser::{LocalRound, StepScore, Task},
};
use protocol::{
    blob::BlobRef,
    checked::Checked,
    delta::{DeltaEncoding, DeltaHeader},
    message::{DeltaReady, DeviceStatus, RoundTask, Timings},
    spec::RunSpec,
    tensor::{TensorMeta, decode_tokens},
};

use crate::{
    block_state::BlockState,
    error::TaskError,
    platform::{Clock, Compute, seconds_since},
};

/// A round in progress.
pub(crate) struct BlockTask {
    pub(crate) task: RoundTask,
    local: LocalRound,
    encoding: DeltaEncoding,
    pub(crate) timings: Timings,
}

impl BlockTask {
    /// Loads the weights of the round. `windows` are [H, N, T + 1]; `files` are the block's and the table's.
    ///
    /// # Errors
    /// When the files do not hold the block, or the windows are too few.
    pub(crate) async fn begin(
        run: &RunSpec,
        task: RoundTask,
        windows: Vec<u32>,
        files: &[Rc<Vec<u8>>],
        device: &Device,
        state: &mut BlockState,
    ) -> Result<BlockTask, TaskError> {
        let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
        let replica = state.prepare(run, &task, &files, device)?;
        let work = Task {
            seed: task.seed,
            learning_rates: task.learning_rates.clone(),
            windows,
            shape: [run.sequences as usize, run.context as usize],
        };
        let local = LocalRound::begin(work, replica).await?;
        let encoding = run.blocks.map_or(DeltaEncoding::F32, |blocks| blocks.delta);
        Ok(BlockTask { task, local, encoding, timings: Timings::default() })
    }

    /// Local steps done, of so many.
    pub(crate) fn progress(&self) -> [u32; 2] {
        [self.local.steps_done() as u32, self.local.steps() as u32]
    }

    /// The next local step; None once all are done.
    ///
    /// # Errors
    /// When the step's numbers are not finite, or the device failed.
    pub(crate) async fn step(
        &mut self,
        state: &mut BlockState,
        clock: &impl Clock,
    ) -> Result<Option<StepScore>, TaskError> {
        let began = clock.now();
        let score = self.local.step(state.replica()?).await?;
        if score.is_some() {
            clock.computed(Compute::LocalStep).await;
            self.timings.local_steps += seconds_since(clock, began);
        }
        Ok(score)
    }

    /// What was learned, as a file.
    ///
    /// # Errors
    /// When a number is not finite, or the device failed.
    pub(crate) async fn delta(&self, state: &mut BlockState) -> Result<Vec<u8>, TaskError> {
        let tensors = self.local.delta(state.replica()?).await?;
        let header = DeltaHeader {
            round: self.task.round,
            block: self.task.block,
            base: self.task.base.hash,
            table: self.task.table.hash,
            encoding: self.encoding,
            lengths: tensors.iter().map(|tensor| tensor.len() as u32).collect(),
        };
        Ok(state.encode(&header, &tensors)?)
    }

    /// Says that the delta's file is `blob`.
    ///
    /// # Errors
    /// [`TaskError::Report`] when a mean is not finite.
    pub(crate) fn ready(&self, blob: BlobRef, status: DeviceStatus) -> Result<DeltaReady, TaskError> {
        let score = self.local.mean_score();
        let ready = DeltaReady {
            round: self.task.round,
            block: self.task.block,
            blob,
            loss: score.loss as f32,
            cross_entropy: score.cross_entropy as f32,
            timings: self.timings,
            status,
        };
        ready.check()?;
        Ok(ready)
    }
}

/// Token ids of windows, which must have the shape `wanted`.
///
/// # Errors
/// Another shape, or a payload that does not match its header.
pub(crate) fn windows(tensor: &TensorMeta, payload: &[u8], wanted: &[u32]) -> Result<Vec<u32>, TaskError> {
    if tensor.shape != wanted {
        return Err(TaskError::Shape { found: tensor.shape.clone(), wanted: wanted.to_vec() });
    }
    Ok(decode_tokens(tensor, payload)?)
}
