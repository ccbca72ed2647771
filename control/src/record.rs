//! Lines of the append-only event log.

use protocol::{
    evaluation::Scores,
    message::{DeviceStatus, LinkSpeed, Timings},
    spec::{Backend, Hop},
    view::Phase,
    worker_id::WorkerId,
};
use serde::{Deserialize, Serialize};

/// Bytes to a worker and from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// To the worker.
    pub down: u64,
    /// From the worker.
    pub up: u64,
}

/// One line of the append-only event log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Record {
    WorkerJoined {
        worker: WorkerId,
        name: String,
    },
    WorkerProfiled {
        worker: WorkerId,
        backend: Backend,
        device: String,
        layer_seconds: f64,
        link: Option<LinkSpeed>,
    },
    WorkerLeft {
        worker: WorkerId,
        why: String,
    },
    WorkerRefused {
        worker: Option<WorkerId>,
        refusal: String,
        words: String,
    },
    PlanMade {
        epoch: u64,
        first_step: u64,
        stages: Vec<(WorkerId, Vec<Hop>)>,
        micro_batches: u32,
        /// Why it was made.
        why: String,
        predicted_step_seconds: f64,
        predicted_efficiency: f64,
    },
    StepDone {
        epoch: u64,
        step: u64,
        loss: f64,
        gradient_norm: f64,
        learning_rate: f64,
        seconds: f64,
        /// Computing time of all stages over stages times `seconds`.
        efficiency: f64,
        /// Mean over longest computing time of a stage.
        balance: f64,
    },
    /// Where each stage's time went, and how its device is.
    StepTimed {
        epoch: u64,
        step: u64,
        workers: Vec<(WorkerId, Timings, DeviceStatus)>,
    },
    /// Steps that a snapshot has made final, and who did them: the ledger of pipeline mode.
    WorkAccepted {
        epoch: u64,
        /// Steps done before, and after.
        first_step: u64,
        steps_done: u64,
        workers: Vec<WorkerId>,
        /// M.
        micro_batches: u32,
    },
    StepDiscarded {
        epoch: u64,
        step: u64,
        why: String,
    },
    Validated {
        steps_done: u64,
        loss: f64,
    },
    SnapshotCommitted {
        steps_done: u64,
        state: String,
    },
    SnapshotFailed {
        steps_done: u64,
        why: String,
    },
    RoundOpened {
        round: u64,
        deadline_seconds: f64,
        /// Worker and block.
        replicas: Vec<(WorkerId, u32)>,
    },
    /// The ledger of block mode.
    DeltaAccepted {
        round: u64,
        block: u32,
        worker: WorkerId,
        norm: f64,
        cross_entropy: f64,
        seconds: f64,
        compute_seconds: f64,
        traffic: Traffic,
    },
    DeltaRefused {
        round: u64,
        worker: WorkerId,
        refusal: String,
        words: String,
    },
    /// A replica whose delta did not come in time.
    DeltaMissed {
        round: u64,
        block: u32,
        worker: WorkerId,
    },
    RoundClosed {
        round: u64,
        seconds: f64,
        assigned: u64,
        accepted: u64,
        /// Blocks with new weights.
        updated: Vec<u32>,
        state: String,
    },
    /// Nobody was left, and nothing had come.
    RoundTakenBack {
        round: u64,
    },
    Evaluated {
        round: u64,
        scores: Scores,
    },
    EvaluationFailed {
        round: u64,
        why: String,
    },
    Phase {
        phase: Phase,
        reason: String,
    },
}
