//! What a page and its Web Worker say to each other, as JSON through `postMessage`.
//!
//! The native worker reports the same [`SessionEvent`]s, to its log.

use serde::{Deserialize, Serialize};

use crate::{
    message::{DrainReason, Profile, Timings},
    spec::{Backend, Hop, RunSpec},
};

/// Page to Web Worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Connect and take part until told otherwise.
    Join {
        /// `ws://` or `wss://` address of `/v1/session`.
        session_url: String,
        /// The coordinator's address, `http://` or `https://`, for blobs.
        coordinator: String,
        /// Name shown to the organizer.
        name: String,
        /// Use this backend; None takes the faster one that works.
        backend: Option<Backend>,
        /// Use WebGPU even where a software adapter provides it.
        allow_software_gpu: bool,
        /// Bytes that a stage may take; None: as the device suggests.
        memory_bytes: Option<u64>,
    },
    /// Leave the run.
    Leave,
    /// Time one full training step (forward, backward, AdamW) of a whole model, several times.
    Bench {
        /// The model and the shapes of its input.
        run: RunSpec,
        /// Where to compute.
        backend: Backend,
        /// How many steps to time.
        repeats: u32,
    },
}

/// What one backend of this device can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendFinding {
    /// The backend.
    pub backend: Backend,
    /// Adapter or processor, for people to read.
    pub device: String,
    /// Why it cannot be used; None when it can.
    pub unusable: Option<String>,
    /// A graphics adapter that the processor simulates: it works, for those who insist.
    pub software: bool,
    /// Bytes of the largest buffer that it takes; None: memory is the limit.
    pub largest_buffer: Option<u64>,
}

/// Web Worker to page: what happens in the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SessionEvent {
    /// Which backends there are.
    Backends {
        /// Each with what it can do.
        found: Vec<BackendFinding>,
    },
    /// On the way to the coordinator.
    Connecting,
    /// The coordinator has taken the worker in.
    Welcomed {
        /// Its number in the run.
        worker: u64,
        /// What is trained.
        run: RunSpec,
    },
    /// Measuring the device and its link.
    Benchmarking,
    /// The measurement is done.
    Profiled {
        /// What was measured.
        profile: Profile,
    },
    /// Without a stage for now.
    Spare,
    /// Fetching or drawing the weights of a stage.
    Loading {
        /// Number of the plan.
        epoch: u64,
        /// The parts of the model to hold.
        hops: Vec<Hop>,
    },
    /// The stage is ready.
    Training {
        /// Number of the plan.
        epoch: u64,
        /// The parts of the model held.
        hops: Vec<Hop>,
    },
    /// The stage is ready, in a run that only writes texts.
    Serving {
        /// Number of the plan.
        epoch: u64,
        /// The parts of the model held.
        hops: Vec<Hop>,
    },
    /// An optimizer step is done.
    Step {
        /// Optimizer steps the weights have seen.
        step: u64,
        /// Micro-batches of the step.
        micro_batches: u32,
        /// Where the time of the step went.
        timings: Timings,
        /// Mean loss in nats per token, where this device holds the head.
        loss: Option<f64>,
        /// Bytes sent since the session began.
        bytes_sent: u64,
        /// Bytes received since the session began.
        bytes_received: u64,
    },
    /// Block mode: fetching the weights of a block for a round.
    BlockLoading {
        /// The round.
        round: u64,
        /// The block.
        block: u32,
    },
    /// Block mode: a local step is done.
    LocalStep {
        /// The round.
        round: u64,
        /// The block.
        block: u32,
        /// Local steps done in this round.
        step: u32,
        /// Local steps of the round, H.
        steps: u32,
        /// Cross-entropy of the step in nats; leaky, as the target is in the noisy input.
        cross_entropy: f64,
    },
    /// Block mode: the delta of a round has been sent.
    DeltaSent {
        /// The round.
        round: u64,
        /// The block.
        block: u32,
        /// Where the time of the round went.
        timings: Timings,
        /// Bytes sent since the session began.
        bytes_sent: u64,
        /// Bytes received since the session began.
        bytes_received: u64,
    },
    /// Block mode: what became of a delta.
    DeltaOutcome {
        /// The round of the delta.
        round: u64,
        /// None: accepted. Else why not, in words.
        refused: Option<String>,
    },
    /// Block mode: measuring the whole model on held-out text.
    Evaluating {
        /// Rounds that the measured weights have seen.
        round: u64,
    },
    /// The connection was lost; another try follows.
    Reconnecting {
        /// Seconds until then.
        in_seconds: f64,
        /// Why it was lost, one sentence.
        reason: String,
    },
    /// The run has ended.
    Over {
        /// How it ended.
        reason: DrainReason,
    },
    /// The coordinator turned this device away, for good.
    Refused {
        /// Why, for a person.
        words: String,
    },
    /// This device cannot go on.
    Failed {
        /// Why, for a person.
        words: String,
    },
    /// Left on request.
    Left,
    /// The measurement that [`Command::Bench`] asked for is done.
    Benched {
        /// Of each timed step.
        seconds: Vec<f64>,
    },
}
