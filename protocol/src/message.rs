//! The header of every frame: what workers and the coordinator say to each other.
//!
//! One enum serves both directions, because a relayed tensor frame leaves the coordinator as the very
//! bytes that came in. [`Message::sender`] says who may send what.

use serde::{Deserialize, Serialize};

use crate::{
    blob::BlobRef,
    evaluation::Scores,
    refusal::Refusal,
    spec::{Assignment, Backend, RunSpec},
    tensor::TensorMeta,
};

/// Which pass over the model a tensor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// One of the M micro-batches of a training step: forward and backward.
    Train { micro_batch: u32 },
    /// A batch of the held-out split: forward only.
    Validate { batch: u32 },
}

/// Where a tensor goes: to the part of the model at `hop`, in this plan, for this step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// Number of the plan. Rises at every change of who holds what.
    pub epoch: u64,
    /// Optimizer step the pass belongs to, from 0. A validation pass carries the number of steps done.
    pub step: u64,
    pub pass: Pass,
    /// Position on the way of an activation through the plan; the receiver's, in either direction.
    pub hop: u32,
}

/// A tensor on its way; the payload follows the header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorFrame {
    pub to: Address,
    pub tensor: TensorMeta,
}

/// What a worker is, said first thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::VERSION`] of the sender, so that a mismatch can be named in words.
    pub protocol: u8,
    /// Build of the worker's program, for people to read.
    pub build: String,
    pub kind: WorkerKind,
    /// Name shown to the organizer; at most 64 characters.
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerKind {
    Native,
    Browser,
}

/// What a worker measured of itself at the run's shapes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub backend: Backend,
    /// Adapter or processor, for people to read; at most 128 characters.
    pub device: String,
    pub threads: u32,
    /// Memory the worker may use for its stage, in bytes; 0 when unknown.
    pub memory_bytes: u64,
    /// One layer on one micro-batch.
    pub layer: PassSeconds,
    pub embedding: PassSeconds,
    /// Final norm, LM head and loss, both ways.
    pub head_seconds: f64,
    /// None where the link was not measured.
    pub link: Option<LinkSpeed>,
}

/// Seconds of a part of the model on one micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PassSeconds {
    pub forward: f64,
    pub backward: f64,
}

impl PassSeconds {
    pub fn total(self) -> f64 {
        self.forward + self.backward
    }
}

/// A worker's way to the coordinator, from timed frames.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkSpeed {
    /// There and back, of an empty frame.
    pub round_trip_seconds: f64,
    /// Bytes per second to the coordinator.
    pub up: f64,
    /// Bytes per second from the coordinator.
    pub down: f64,
}

/// A frame of `padding` bytes, to be answered with one of `answer` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub number: u32,
    /// Bytes after this header; what they are does not matter.
    pub padding: u32,
    /// At most [`crate::limits::PROBE`].
    pub answer: u32,
}

/// What a worker tells of itself with every step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Vitals {
    /// Bytes the program holds now; 0 when unknown.
    pub memory_bytes: u64,
    /// None where the device does not say.
    pub pressure: Option<Pressure>,
}

/// How hard a device is at work, in the steps of the Compute Pressure API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    Nominal,
    Fair,
    Serious,
    Critical,
}

/// Where a stage's time went in one step, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    pub forward: f64,
    pub backward: f64,
    /// Waiting for a message.
    pub wait: f64,
    /// Encoding and handing frames to the socket.
    pub send: f64,
    /// Decoding frames.
    pub receive: f64,
    /// Reading gradients' norm and the AdamW update of the step before.
    pub optimizer: f64,
}

impl Timings {
    /// Seconds of computing.
    pub fn busy(&self) -> f64 {
        self.forward + self.backward + self.optimizer
    }
}

/// A stage has done all backward passes of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    pub epoch: u64,
    pub step: u64,
    /// Sum of squares of the stage's accumulated gradients.
    pub squared_norm: f64,
    /// Mean cross-entropy of each micro-batch in nats, in order; empty unless the stage has the head.
    pub losses: Vec<f32>,
    pub timings: Timings,
    pub vitals: Vitals,
}

/// Mean cross-entropy, in nats, of one validation batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValidationReport {
    pub epoch: u64,
    pub step: u64,
    pub batch: u32,
    pub loss: f32,
}

/// All stages have reported: update the weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Apply {
    pub epoch: u64,
    pub step: u64,
    /// Factor for the gradients, from the global norm.
    pub clip_scale: f64,
    pub learning_rate: f64,
    /// Upload weights and optimizer state once updated.
    pub snapshot: bool,
}

/// A part of a snapshot lies in the coordinator's store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotReady {
    pub epoch: u64,
    /// Number of optimizer steps the weights have seen.
    pub steps_done: u64,
    pub blob: BlobRef,
}

/// Something went wrong inside a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub epoch: u64,
    pub kind: FaultKind,
    /// One sentence; at most 512 characters.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// A frame from another worker did not match its checksum or shape.
    BadTensor,
    /// NaN or infinity in an activation, a gradient or the loss.
    NotFinite,
    /// The device is out of memory or lost.
    Device,
    /// The assignment could not be loaded.
    Weights,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrainReason {
    /// The run has done its last step.
    Finished,
    /// The organizer stopped the run.
    Stopped,
}

/// A worker's part in a round of block mode: train one block on the windows that follow in Tokens [H, N, T + 1],
/// whose address carries the round as its epoch and the block as its hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Number of the round; also the version of the weights it starts from.
    pub round: u64,
    pub block: u32,
    /// The block's own weights.
    pub base: BlobRef,
    /// The table that all blocks share.
    pub table: BlobRef,
    /// Key of the noise: with it, the windows and the weights, anybody can do the same work again.
    pub seed: u64,
    /// Learning rate of each of the H local steps.
    pub learning_rates: Vec<f64>,
    /// Start AdamW's moments anew; false keeps those of the last round.
    pub fresh: bool,
    /// A delta later than this, from now, will not be taken.
    pub deadline_ms: u64,
}

/// What a worker learned in a round lies in the coordinator's store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeltaReady {
    pub round: u64,
    pub block: u32,
    pub blob: BlobRef,
    /// Mean of the weighted loss over the local steps.
    pub loss: f32,
    /// Mean of the cross-entropy over the local steps, in nats; leaky, as the target is in the noisy input.
    pub cross_entropy: f32,
    pub timings: Timings,
    pub vitals: Vitals,
}

/// What became of a worker's delta.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    pub round: u64,
    /// None: accepted. Else why not, in words; at most 512 characters.
    pub refused: Option<String>,
}

/// Measure the whole model on one batch of held-out windows, which follow in Tokens [N, T + 1].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluate {
    /// Rounds the weights have seen.
    pub round: u64,
    pub batch: u32,
    /// One per block, in order.
    pub blocks: Vec<BlobRef>,
    pub table: BlobRef,
    /// Key of the noise.
    pub seed: u64,
    /// K of the scores with several draws.
    pub draws: u32,
}

/// Scores of one batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    pub round: u64,
    pub batch: u32,
    pub scores: Scores,
}

/// The welcome of the coordinator: who you are, what is trained, how to stay alive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    pub worker: u64,
    /// Bearer token for `/v1/blobs`, good for this session.
    pub token: String,
    pub run: RunSpec,
    /// Send something at least this often, in milliseconds ...
    pub heartbeat_ms: u32,
    /// ... or be taken for vanished after this long.
    pub lease_ms: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    // Worker to coordinator.
    Hello(Hello),
    Profile(Profile),
    /// The stage of this epoch is loaded.
    Ready {
        epoch: u64,
    },
    StepReport(StepReport),
    ValidationReport(ValidationReport),
    SnapshotReady(SnapshotReady),
    Heartbeat,
    /// The tab is about to be hidden or frozen.
    Pausing,
    Leaving {
        reason: String,
    },
    Fault(Fault),

    // Either way: relayed as the bytes that came in.
    Activation(TensorFrame),
    Gradient(TensorFrame),

    // Coordinator to worker.
    Welcome(Welcome),
    /// Measure yourself at the run's shapes and answer with a Profile.
    Benchmark,
    Assign(Assignment),
    /// Token ids [N, T] for the first hop.
    Tokens(TensorFrame),
    /// The ids [N, T] that follow them, for the hop with the head.
    Targets(TensorFrame),
    Apply(Apply),
    /// The plan of `epoch` has ended: drop its stage and wait for the next one.
    Revoke {
        epoch: u64,
    },
    Drain {
        reason: DrainReason,
    },
    Refuse(Refusal),

    // Added later: the numbers of the others stay.
    /// Worker to coordinator. Times the link; the answer comes at once.
    Probe(Probe),
    /// Answers the probe of this number, with `padding` bytes after the header.
    ProbeAnswer {
        number: u32,
        padding: u32,
    },
    /// The snapshot of this many steps is safe: copies of older ones may go.
    SnapshotKept {
        steps_done: u64,
    },

    // Block mode.
    /// Coordinator to worker.
    Round(Round),
    /// Worker to coordinator.
    DeltaReady(DeltaReady),
    /// Coordinator to worker.
    Judged(Judged),
    /// Coordinator to worker.
    Evaluate(Evaluate),
    /// Worker to coordinator.
    Evaluated(Evaluated),
}

/// Who may send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    Worker,
    Coordinator,
    Either,
}

impl Message {
    pub fn sender(&self) -> Sender {
        use Message::*;
        match self {
            Hello(_)
            | Profile(_)
            | Ready { .. }
            | StepReport(_)
            | ValidationReport(_)
            | SnapshotReady(_)
            | Heartbeat
            | Pausing
            | Leaving { .. }
            | Fault(_)
            | Probe(_)
            | DeltaReady(_)
            | Evaluated(_) => Sender::Worker,
            Activation(_) | Gradient(_) => Sender::Either,
            Welcome(_)
            | Benchmark
            | Assign(_)
            | Tokens(_)
            | Targets(_)
            | Apply(_)
            | Revoke { .. }
            | Drain { .. }
            | Refuse(_)
            | ProbeAnswer { .. }
            | SnapshotKept { .. }
            | Round(_)
            | Judged(_)
            | Evaluate(_) => Sender::Coordinator,
        }
    }

    /// The tensor that follows the header, if the message carries one.
    pub fn tensor(&self) -> Option<&TensorFrame> {
        match self {
            Message::Activation(t) | Message::Gradient(t) | Message::Tokens(t) | Message::Targets(t) => {
                Some(t)
            }
            _ => None,
        }
    }

    /// Bytes that follow the header for their length alone.
    pub fn padding(&self) -> u32 {
        match self {
            Message::Probe(Probe { padding, .. }) | Message::ProbeAnswer { padding, .. } => *padding,
            _ => 0,
        }
    }

    /// The variant's name, for logs and refusals.
    pub fn name(&self) -> &'static str {
        use Message::*;
        match self {
            Hello(_) => "Hello",
            Profile(_) => "Profile",
            Ready { .. } => "Ready",
            StepReport(_) => "StepReport",
            ValidationReport(_) => "ValidationReport",
            SnapshotReady(_) => "SnapshotReady",
            Heartbeat => "Heartbeat",
            Pausing => "Pausing",
            Leaving { .. } => "Leaving",
            Fault(_) => "Fault",
            Activation(_) => "Activation",
            Gradient(_) => "Gradient",
            Welcome(_) => "Welcome",
            Benchmark => "Benchmark",
            Assign(_) => "Assign",
            Tokens(_) => "Tokens",
            Targets(_) => "Targets",
            Apply(_) => "Apply",
            Revoke { .. } => "Revoke",
            Drain { .. } => "Drain",
            Refuse(_) => "Refuse",
            Probe(_) => "Probe",
            ProbeAnswer { .. } => "ProbeAnswer",
            SnapshotKept { .. } => "SnapshotKept",
            Round(_) => "Round",
            DeltaReady(_) => "DeltaReady",
            Judged(_) => "Judged",
            Evaluate(_) => "Evaluate",
            Evaluated(_) => "Evaluated",
        }
    }
}
