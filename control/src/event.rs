//! What the run machine takes in and gives out. Plain data: the shell does the IO.

use std::time::Duration;

use protocol::{
    blob::BlobRef,
    evaluation::Scores,
    message::{Address, Hello, Message, Timings, Vitals},
    refusal::Refusal,
    spec::Hop,
};
use serde::{Deserialize, Serialize};

use super::{relay::Relay, snapshot::Manifest};
use crate::rounds::{
    DeltaRefusal, Published,
    keeper::Averaged,
    manifest::{Totals, Work},
};

/// Number of a connected worker; never used twice in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub u64);

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "worker {}", self.0)
    }
}

/// Bytes to a worker and from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    pub down: u64,
    pub up: u64,
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
    /// Block mode: a delta has been looked at; its length, if it passed. `traffic` is what went between the store, the
    /// session and the worker since its last delta.
    DeltaChecked {
        worker: WorkerId,
        round: u64,
        outcome: Result<f64, DeltaRefusal>,
        traffic: Traffic,
    },
    /// Block mode: the weights after a round are published, and its manifest is on disk.
    Averaged {
        published: Published,
        averaged: Averaged,
    },
    /// Block mode: they could not be.
    AverageFailed {
        round: u64,
        why: String,
    },
    /// Block mode: the coordinator has measured the weights of this round on one batch.
    Evaluated {
        round: u64,
        batch: u32,
        outcome: Result<Scores, String>,
    },
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

/// Which windows of block mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// Of the training split, for all local steps of a replica.
    Round { round: u64, block: u32, slot: u32 },
    /// A batch of the held-out split.
    Evaluation { round: u64, batch: u32 },
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
    /// Block mode: cut these windows from the data and send them.
    SendWindows {
        worker: WorkerId,
        windows: Windows,
    },
    /// Block mode: look at a delta, then say [`Event::DeltaChecked`].
    CheckDelta {
        worker: WorkerId,
        block: u32,
        published: Published,
        blob: BlobRef,
    },
    /// Block mode: average these into the weights, publish them, then say [`Event::Averaged`].
    Average {
        round: u64,
        work: Vec<Work>,
        /// Rounds that have changed each block so far, and the sums with all of `work`: what comes of the round is added,
        /// and what is dropped is taken off, before they are written down.
        updates: Vec<u64>,
        totals: Totals,
        /// Write a checkpoint too.
        checkpoint: bool,
    },
    /// Block mode: measure published weights on these batches, then say [`Event::Evaluated`] for each.
    Evaluate {
        published: Published,
        batches: Vec<u32>,
    },
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
    Phase {
        phase: protocol::view::Phase,
        reason: String,
    },
}
