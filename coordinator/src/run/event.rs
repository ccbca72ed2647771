//! What the run machine takes in and gives out. Plain data: the shell does the IO.

use std::time::Duration;

use protocol::{
    message::{Address, Hello, Message, Timings, Vitals},
    refusal::Refusal,
    spec::Hop,
};
use serde::{Deserialize, Serialize};

use super::{relay::Relay, snapshot::Manifest};

/// Number of a connected worker; never used twice in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub u64);

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "worker {}", self.0)
    }
}

/// What the organizer may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Begin, or go on after a pause.
    Start,
    /// Hold at the end of the current step.
    Pause,
    /// End the run at the end of the current step, with a snapshot.
    Stop,
    Remove(WorkerId),
}

#[derive(Debug, Clone)]
pub enum Event {
    /// A worker said Hello in a version we speak. `token` is its bearer token for blobs.
    Joined {
        worker: WorkerId,
        hello: Hello,
        token: String,
    },
    /// A control message. Tensor frames go through the [`Relay`] and are never seen here.
    Said {
        worker: WorkerId,
        message: Message,
    },
    /// Bytes arrived from the worker; renews its lease.
    Heard {
        worker: WorkerId,
    },
    /// Round trip of a ping.
    Measured {
        worker: WorkerId,
        rtt: Duration,
    },
    /// Something it sent was turned away, and nothing of it applied; the end of its connection follows. Without a
    /// worker when it had not been let in.
    Refused {
        worker: Option<WorkerId>,
        refusal: Refusal,
    },
    /// The connection is closed.
    Gone {
        worker: WorkerId,
        why: String,
    },
    /// The manifest of this snapshot is on disk. `state` is the hash of all its weights and moments.
    Committed {
        steps_done: u64,
        state: String,
    },
    /// It could not be written.
    CommitFailed {
        steps_done: u64,
        why: String,
    },
    Asked(Command),
    /// Time passes: leases end, and spares are measured again.
    Tick,
}

/// Which half of a batch of token windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Ids for the embedding.
    Inputs,
    /// The ids that follow them, for the loss.
    Targets,
}

#[derive(Debug, Clone)]
pub enum Action {
    Send {
        worker: WorkerId,
        message: Message,
    },
    /// Cut the windows of this pass from the data and send them.
    SendBatch {
        worker: WorkerId,
        to: Address,
        half: Half,
    },
    /// From now on tensor frames are judged by this plan.
    Route(Relay),
    /// From now on frames of this step are let through.
    OpenStep {
        step: u64,
    },
    /// Say why and close the connection.
    Close {
        worker: WorkerId,
        refusal: Refusal,
    },
    /// All parts are stored: write the manifest, then say [`Event::Committed`].
    Commit(Manifest),
    /// The run would go back to this snapshot from now on: older ones may be forgotten.
    Prune {
        accepted: u64,
    },
    /// Append to the event log.
    Record(Record),
    /// A new point of the learning curve is there.
    Point(protocol::view::CurvePoint),
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
        backend: protocol::spec::Backend,
        device: String,
        layer_seconds: f64,
        link: Option<protocol::message::LinkSpeed>,
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
        workers: Vec<(WorkerId, Timings, Vitals)>,
    },
    /// Accepted work, per worker: the ledger.
    WorkAccepted {
        epoch: u64,
        step: u64,
        workers: Vec<WorkerId>,
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
    Phase {
        phase: protocol::view::Phase,
        reason: String,
    },
}
