//! What the coordinator tells the pages, as JSON over `/v1/run`, `/v1/run/curve` and `/v1/run/events`.

use serde::{Deserialize, Serialize};

use crate::{
    evaluation::Scores,
    message::{DeviceStatus, LinkSpeed, Timings, WorkerKind},
    spec::{Backend, Hop, RunSpec},
};

/// The state of a run, for people and for pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Not enough workers yet, or the organizer has not started it.
    Waiting,
    /// Workers load the stages of a new plan.
    Loading,
    Training,
    Paused,
    /// The last step is done.
    Finished,
    /// Ended by the organizer or by a fault.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Connected, measuring itself.
    Benchmarking,
    /// Measured, without a stage: steps in at the next plan.
    Spare,
    /// Loading the weights of its stage.
    Loading,
    Training,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    pub id: u64,
    pub name: String,
    pub kind: WorkerKind,
    pub state: WorkerState,
    /// None until it has measured itself.
    pub backend: Option<Backend>,
    pub device: String,
    /// Seconds for forward and backward of one layer on one micro-batch, as measured on joining.
    pub layer_seconds: f64,
    /// How much longer its steps take than that promised: 1 as promised, 3 three times as long.
    pub pace: f64,
    pub link: Option<LinkSpeed>,
    /// What its stage may take, in bytes; 0 for unknown.
    pub memory_bytes: u64,
    /// What its plan says the stage takes, in bytes; 0 without one.
    pub stage_bytes: u64,
    /// As of its last step.
    pub status: DeviceStatus,
    /// Its parts of the model; empty for a spare.
    pub hops: Vec<Hop>,
    /// Where its time went in the last step, in seconds.
    pub timings: Timings,
    /// Micro-batches of finished steps this worker took part in.
    pub accepted_micro_batches: u64,
    /// In block mode: what it works on and what came of it.
    pub replica: Option<ReplicaView>,
    /// Round trip of the last ping, in milliseconds; None before the first answer.
    pub rtt_ms: Option<f64>,
    /// Seconds since anything was heard from it.
    pub silent_seconds: f64,
}

/// A worker of block mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaView {
    /// None while it stands by.
    pub block: Option<u32>,
    pub accepted: u64,
    pub refused: u64,
    /// Rounds that ended without its delta.
    pub missed: u64,
    /// Bytes of the last round that brought a delta, to the worker and from it.
    pub bytes_down: u64,
    pub bytes_up: u64,
    /// Seconds from the opening of that round to its delta.
    pub round_seconds: Option<f64>,
}

/// One block of a run in block mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockView {
    /// Ends of its own range of sigma.
    pub sigma_min: f64,
    pub sigma_max: f64,
    /// Workers at it in the round under way.
    pub replicas: u32,
    /// Deltas that are in.
    pub arrived: u32,
    /// Rounds that changed it.
    pub updates: u64,
    /// Mean local cross-entropy of its last accepted deltas, in nats; leaky.
    pub local_cross_entropy: Option<f64>,
}

/// A run in block mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundsView {
    /// Rounds done, of this many.
    pub round: u64,
    pub rounds: u64,
    /// Local steps of a round.
    pub local_steps: u32,
    pub blocks: Vec<BlockView>,
    /// Seconds that the round under way may take.
    pub deadline_seconds: f64,
    /// Accepted deltas over assigned replicas, in the last round.
    pub participation: Option<f64>,
    /// Mean of it over all rounds.
    pub mean_participation: Option<f64>,
    /// Seconds of the last round.
    pub round_seconds: Option<f64>,
    /// Deltas accepted and refused.
    pub accepted: u64,
    pub refused: u64,
    /// Bytes to workers and from them, for accepted deltas.
    pub bytes_down: u64,
    pub bytes_up: u64,
    pub aggregator: String,
    /// The newest evaluation, after so many rounds.
    pub evaluation: Option<(u64, Scores)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunView {
    pub run: RunSpec,
    pub phase: Phase,
    /// Why the run is in this phase, one sentence for a person.
    pub reason: String,
    /// Number of the plan; 0 before the first.
    pub epoch: u64,
    /// Optimizer steps done, of this many.
    pub step: u64,
    pub steps: u64,
    /// Workers the run waits for before it starts.
    pub workers_wanted: u32,
    /// Parameters of the whole model.
    pub parameters: u64,
    /// What it learns from, as in "the text in novels.txt".
    pub corpus: String,
    pub tokenizer: String,
    /// Tokens in the training split.
    pub train_tokens: u64,
    /// Nats per token.
    pub train_loss: Option<f64>,
    pub validation_loss: Option<f64>,
    pub tokens_per_second: f64,
    /// Computing time of all stages over stages times wall time, in the last step; None before one.
    pub efficiency: Option<f64>,
    /// Mean over longest computing time of a stage, in the last step.
    pub balance: Option<f64>,
    /// What the plan promises, in seconds.
    pub predicted_step_seconds: Option<f64>,
    /// Steps the newest complete snapshot has seen.
    pub snapshot_step: Option<u64>,
    /// Hash of all weights and moments in that snapshot, the same however the model is split.
    pub snapshot_state: Option<String>,
    /// None in pipeline mode.
    pub rounds: Option<RoundsView>,
    /// Frames, reports and workers turned away, by reason.
    pub refusals: std::collections::BTreeMap<String, u64>,
    pub workers: Vec<WorkerView>,
}

/// One point of the learning curve; losses in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Optimizer steps done.
    pub step: u64,
    pub train_loss: f64,
    /// Only where the held-out split was measured.
    pub validation_loss: Option<f64>,
    pub learning_rate: f64,
    pub tokens_per_second: f64,
    /// In block mode, where it was measured: `validation_loss` is its one draw from noise.
    pub evaluation: Option<Scores>,
    /// In block mode: accepted deltas over assigned replicas.
    pub participation: Option<f64>,
}
