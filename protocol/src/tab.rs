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
        /// `http://` or `https://` origin, for blobs.
        origin: String,
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
    Bench { run: RunSpec, backend: Backend, repeats: u32 },
}

/// What one backend of this device can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendFinding {
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
        found: Vec<BackendFinding>,
    },
    Connecting,
    Welcomed {
        worker: u64,
        run: RunSpec,
    },
    Benchmarking,
    Profiled {
        profile: Profile,
    },
    /// Without a stage for now.
    Spare,
    /// Fetching or drawing the weights of a stage.
    Loading {
        epoch: u64,
        hops: Vec<Hop>,
    },
    /// The stage is ready.
    Training {
        epoch: u64,
        hops: Vec<Hop>,
    },
    /// An optimizer step is done.
    Step {
        /// Optimizer steps the weights have seen.
        step: u64,
        micro_batches: u32,
        timings: Timings,
        /// Mean loss in nats per token, where this device holds the head.
        loss: Option<f64>,
        /// Bytes sent and received since the session began.
        bytes_sent: u64,
        bytes_received: u64,
    },
    /// Block mode: fetching the weights of a block for a round.
    BlockLoading {
        round: u64,
        block: u32,
    },
    /// Block mode: a local step is done.
    LocalStep {
        round: u64,
        block: u32,
        /// Of so many.
        step: u32,
        steps: u32,
        /// Cross-entropy of the step in nats; leaky, as the target is in the noisy input.
        cross_entropy: f64,
    },
    /// Block mode: the delta of a round has been sent.
    DeltaSent {
        round: u64,
        block: u32,
        timings: Timings,
        /// Bytes sent and received since the session began.
        bytes_sent: u64,
        bytes_received: u64,
    },
    /// Block mode: what became of a delta; None: accepted, else why not.
    Judged {
        round: u64,
        refused: Option<String>,
    },
    /// Block mode: measuring the whole model on held-out text.
    Evaluating {
        round: u64,
    },
    /// The connection was lost; another try follows.
    Reconnecting {
        in_seconds: f64,
        reason: String,
    },
    /// The run has ended.
    Over {
        reason: DrainReason,
    },
    /// The coordinator turned this device away, for good.
    Refused {
        words: String,
    },
    /// This device cannot go on.
    Failed {
        words: String,
    },
    /// Left on request.
    Left,
    /// Seconds of each timed step.
    Benched {
        seconds: Vec<f64>,
    },
}
