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
    /// Steps or rounds are done.
    Training,
    /// In a run that only writes texts: the stages hold the model and can be asked.
    Serving,
    /// By the organizer, until resumed.
    Paused,
    /// The last step is done.
    Finished,
    /// Ended by the organizer or by a fault.
    Stopped,
}

/// The state of a worker, for people and for pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Connected, measuring itself.
    Benchmarking,
    /// Measured, without a stage: steps in at the next plan.
    Spare,
    /// Loading the weights of its stage.
    Loading,
    /// Has a part in the run.
    Training,
    /// Holds a part of a model that only writes texts.
    Serving,
}

/// One worker of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its number in the run: see [`crate::worker_id::WorkerId`].
    pub id: u64,
    /// As it calls itself.
    pub name: String,
    /// What kind of program it is.
    pub kind: WorkerKind,
    /// What it is doing.
    pub state: WorkerState,
    /// Where it computes. None until it has measured itself.
    pub backend: Option<Backend>,
    /// Adapter or processor; empty until it has measured itself.
    pub device: String,
    /// Seconds for forward and backward of one layer on one micro-batch, as measured on joining.
    pub layer_seconds: f64,
    /// How much longer its steps take than that promised: 1 as promised, 3 three times as long.
    pub pace: f64,
    /// Its link to the coordinator; None where it was not measured.
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
    /// Deltas accepted.
    pub accepted: u64,
    /// Deltas refused.
    pub refused: u64,
    /// Rounds that ended without its delta.
    pub missed: u64,
    /// Bytes to the worker in its last round that brought a delta.
    pub bytes_down: u64,
    /// Bytes from the worker in that round.
    pub bytes_up: u64,
    /// Seconds from the opening of that round to its delta.
    pub round_seconds: Option<f64>,
}

/// One block of a run in block mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockView {
    /// Lower end of its own range of sigma, the standard deviation of the noise.
    pub sigma_min: f64,
    /// Upper end of that range.
    pub sigma_max: f64,
    /// Workers at it in the round in progress.
    pub replicas: u32,
    /// Deltas of that round that are in.
    pub arrived: u32,
    /// Rounds that changed it.
    pub updates: u64,
    /// Mean local cross-entropy of its last accepted deltas, in nats; leaky.
    pub local_cross_entropy: Option<f64>,
}

/// A run in block mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundsView {
    /// Rounds done.
    pub round: u64,
    /// Rounds in all.
    pub rounds: u64,
    /// Local steps of a round.
    pub local_steps: u32,
    /// In order.
    pub blocks: Vec<BlockView>,
    /// Seconds that the round in progress may take; 0 between rounds.
    pub deadline_seconds: f64,
    /// Accepted deltas over assigned replicas, in the last round.
    pub participation: Option<f64>,
    /// Mean of it over all rounds.
    pub mean_participation: Option<f64>,
    /// Seconds of the last round.
    pub round_seconds: Option<f64>,
    /// Deltas accepted.
    pub accepted: u64,
    /// Deltas refused.
    pub refused: u64,
    /// Bytes to workers, for accepted deltas.
    pub bytes_down: u64,
    /// Bytes from workers, for accepted deltas.
    pub bytes_up: u64,
    /// How deltas are averaged, as `rounds.aggregator` says it.
    pub aggregator: String,
    /// The newest evaluation, after so many rounds.
    pub evaluation: Option<(u64, Scores)>,
}

/// A run, whole: the answer of `/v1/run` and an event whenever it changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunView {
    /// What is trained.
    pub run: RunSpec,
    /// The state of the run.
    pub phase: Phase,
    /// Why the run is in this phase, one sentence for a person.
    pub reason: String,
    /// Number of the plan; 0 before the first. In block mode, rounds done.
    pub epoch: u64,
    /// Optimizer steps done; of each block in block mode.
    pub step: u64,
    /// Optimizer steps in all.
    pub steps: u64,
    /// Workers the run waits for before it starts.
    pub workers_wanted: u32,
    /// Parameters of the whole model.
    pub parameters: u64,
    /// What it learns from, as in "the text in novels.txt".
    pub corpus: String,
    /// How text becomes tokens, as `data.tokenizer` says it.
    pub tokenizer: String,
    /// Tokens in the training split.
    pub train_tokens: u64,
    /// Of the last step, in nats per token; None before one.
    pub train_loss: Option<f64>,
    /// The newest loss on the held-out split, in nats per token; None before one.
    pub validation_loss: Option<f64>,
    /// Tokens trained on per second of wall time, over the last few steps or the last round; 0 unless training.
    pub tokens_per_second: f64,
    /// Computing time of all stages over stages times wall time, in the last step; None before one.
    pub efficiency: Option<f64>,
    /// Mean over longest computing time of a stage, in the last step.
    pub balance: Option<f64>,
    /// Seconds that a step takes by the plan.
    pub predicted_step_seconds: Option<f64>,
    /// Steps the newest complete snapshot has seen.
    pub snapshot_step: Option<u64>,
    /// Hash of all weights and moments in that snapshot, the same however the model is split.
    pub snapshot_state: Option<String>,
    /// What block mode adds; None in pipeline mode.
    pub rounds: Option<RoundsView>,
    /// Frames, reports and workers turned away, by reason.
    pub refusals: std::collections::BTreeMap<String, u64>,
    /// Those connected, by number.
    pub workers: Vec<WorkerView>,
}

/// One point of the learning curve; losses in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Optimizer steps done.
    pub step: u64,
    /// Mean over the step's micro-batches, or over the round's accepted deltas.
    pub train_loss: f64,
    /// Only where the held-out split was measured.
    pub validation_loss: Option<f64>,
    /// AdamW's rate in this step.
    pub learning_rate: f64,
    /// Tokens trained on per second of wall time.
    pub tokens_per_second: f64,
    /// In block mode, where it was measured: `validation_loss` is its one draw from noise.
    pub evaluation: Option<Scores>,
    /// In block mode: accepted deltas over assigned replicas.
    pub participation: Option<f64>,
}
