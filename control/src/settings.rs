//! What does not change during a run, in either mode.

use std::time::Duration;

use protocol::spec::RunSpec;

use crate::learning_rate::LearningRate;

/// What does not change during a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// What workers are told of it. M may be 0 until the first plan chooses it.
    pub run: RunSpec,
    /// Optimizer steps of the whole run; in block mode, of each block.
    pub steps: u64,
    /// Of the weights, the order of the data and the noise.
    pub seed: u64,
    /// Measured workers to wait for before the first step or round.
    pub start_with: u32,
    /// By step.
    pub learning_rate: LearningRate,
    /// Measure the held-out split after every this many steps, and after the last; 0: never.
    pub validate_every: u64,
    /// Batches of one measurement.
    pub validation_batches: u32,
    /// Steps between snapshots in pipeline mode, between checkpoints in block mode.
    pub snapshot_every: u64,
    /// A worker says something at least this often.
    pub heartbeat: Duration,
    /// A worker not heard from for this long has vanished.
    pub lease: Duration,
    /// A plan of which nothing has been heard for this long is given up, whatever was learned of its steps.
    pub step_deadline: Duration,
    /// Workers connected at a time.
    pub max_workers: u32,
    /// Of the time of a stage in training, what texts may take; above 0, at most 1.
    pub texts_share: f64,
    /// What it learns from, as in "the text in novels.txt".
    pub corpus: String,
    /// Name of the tokenizer.
    pub tokenizer: String,
    /// Tokens in the training split.
    pub train_tokens: u64,
}
