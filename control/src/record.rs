//! Lines of the append-only event log.

use protocol::{
    evaluation::Scores,
    message::{DeviceStatus, LinkSpeed, Timings},
    spec::{Backend, Hop},
    view::{CurvePoint, Phase},
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

/// One line of the append-only event log. Times are in seconds, losses in nats per token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Record {
    /// A worker was let in.
    WorkerJoined {
        /// Its number.
        worker: WorkerId,
        /// The name it gave.
        name: String,
    },
    /// A worker has measured itself.
    WorkerProfiled {
        /// Which worker.
        worker: WorkerId,
        /// Where it computes.
        backend: Backend,
        /// Adapter or processor, as it says.
        device: String,
        /// Forward and backward of one layer on one micro-batch.
        layer_seconds: f64,
        /// None where the link was not measured.
        link: Option<LinkSpeed>,
    },
    /// A worker is gone.
    WorkerLeft {
        /// Which worker.
        worker: WorkerId,
        /// Why, for people.
        why: String,
    },
    /// Something of a worker was turned away, or a fault was counted against it.
    WorkerRefused {
        /// None when it had not been let in.
        worker: Option<WorkerId>,
        /// What kind of refusal or fault, as in the counters.
        refusal: String,
        /// For people.
        words: String,
    },
    /// Pipeline mode: a plan is in force.
    PlanMade {
        /// Its number.
        epoch: u64,
        /// The step it begins with.
        first_step: u64,
        /// Who holds what, from the embedding to the head.
        stages: Vec<(WorkerId, Vec<Hop>)>,
        /// M.
        micro_batches: u32,
        /// Why it was made.
        why: String,
        /// What a step should take.
        predicted_step_seconds: f64,
        /// Computing time of all stages over stages times step time, as predicted.
        predicted_efficiency: f64,
    },
    /// Pipeline mode: an optimizer step is done.
    StepDone {
        /// Number of the plan.
        epoch: u64,
        /// The step, from 0.
        step: u64,
        /// Mean cross-entropy over the micro-batches.
        loss: f64,
        /// Global norm before clipping.
        gradient_norm: f64,
        /// AdamW's rate in this step.
        learning_rate: f64,
        /// From its opening to the last report.
        seconds: f64,
        /// Computing time of all stages over stages times `seconds`.
        efficiency: f64,
        /// Mean over longest computing time of a stage.
        balance: f64,
    },
    /// Pipeline mode: where each stage's time went, and how its device is.
    StepTimed {
        /// Number of the plan.
        epoch: u64,
        /// The step.
        step: u64,
        /// Every stage's worker.
        workers: Vec<(WorkerId, Timings, DeviceStatus)>,
    },
    /// Pipeline mode: steps that a snapshot has made final, and who did them. This is the ledger of that mode.
    WorkAccepted {
        /// Number of the plan whose stages gave the snapshot.
        epoch: u64,
        /// Steps done before.
        first_step: u64,
        /// Steps done now.
        steps_done: u64,
        /// The holders of its stages.
        workers: Vec<WorkerId>,
        /// M.
        micro_batches: u32,
    },
    /// Pipeline mode: a plan has ended before its time; work since the last snapshot is done again.
    StepDiscarded {
        /// Number of the plan.
        epoch: u64,
        /// The step it was at.
        step: u64,
        /// Why, for people.
        why: String,
    },
    /// Pipeline mode: the held-out split was measured.
    Validated {
        /// Steps the weights had seen.
        steps_done: u64,
        /// Mean cross-entropy.
        loss: f64,
    },
    /// Pipeline mode: a snapshot counts.
    SnapshotCommitted {
        /// Steps its weights have seen.
        steps_done: u64,
        /// Hash of all its weights and moments.
        state: String,
    },
    /// Pipeline mode: a snapshot could not be kept.
    SnapshotFailed {
        /// Steps its weights have seen.
        steps_done: u64,
        /// Why not, for people.
        why: String,
    },
    /// Block mode: a round has begun.
    RoundOpened {
        /// The round, from 0.
        round: u64,
        /// How long it may take.
        deadline_seconds: f64,
        /// Worker and block of each replica.
        replicas: Vec<(WorkerId, u32)>,
    },
    /// Block mode: a delta passed its checks. With [`Record::DeltaRefused`], the ledger of that mode.
    DeltaAccepted {
        /// The round.
        round: u64,
        /// The block it changes.
        block: u32,
        /// Whose it is.
        worker: WorkerId,
        /// Its length.
        norm: f64,
        /// Mean over the local steps.
        cross_entropy: f64,
        /// From the opening of the round to the word of it.
        seconds: f64,
        /// Of these, the worker's computing time.
        compute_seconds: f64,
        /// Bytes since its last delta.
        traffic: Traffic,
    },
    /// Block mode: a delta was not taken.
    DeltaRefused {
        /// The round it names.
        round: u64,
        /// Whose it is.
        worker: WorkerId,
        /// What kind of refusal, as in the counters.
        refusal: String,
        /// For people.
        words: String,
    },
    /// Block mode: a replica whose delta did not come in time.
    DeltaMissed {
        /// The round.
        round: u64,
        /// The block it had.
        block: u32,
        /// Whose replica.
        worker: WorkerId,
    },
    /// Block mode: the weights after a round are published.
    RoundClosed {
        /// The round.
        round: u64,
        /// From its opening to the manifest.
        seconds: f64,
        /// Replicas in it.
        assigned: u64,
        /// Deltas averaged.
        accepted: u64,
        /// Blocks with new weights.
        updated: Vec<u32>,
        /// Hash of the published weights.
        state: String,
    },
    /// Block mode: a round ended with nobody left and nothing sent; it is opened again.
    RoundTakenBack {
        /// The round.
        round: u64,
    },
    /// Block mode: published weights were measured.
    Evaluated {
        /// Rounds they have seen.
        round: u64,
        /// The scores, means over all batches.
        scores: Scores,
    },
    /// Block mode: published weights could not be measured.
    EvaluationFailed {
        /// Rounds they have seen.
        round: u64,
        /// Why not, for people.
        why: String,
    },
    /// A point of the learning curve, so that it survives a restart.
    Point {
        /// The point.
        point: CurvePoint,
    },
    /// The run has entered a phase.
    Phase {
        /// The phase.
        phase: Phase,
        /// Why, for people.
        reason: String,
    },
}
