//! Messages from a worker to the coordinator.

use serde::{Deserialize, Serialize};

use super::{
    Decoded, DeviceStatus, LinkSpeed, PassSeconds, Payload, Timings,
    measurements::{cross_entropy, positive_seconds},
    messages,
};
use crate::{
    blob::BlobRef,
    checked::{
        any, at_most, checked_struct, counter, discrete, list, nested, optional, padding, text, within,
    },
    evaluation::Scores,
    limits,
    spec::Backend,
};

messages! {
    /// From a worker to the coordinator.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub enum Up {
        /// The first message of a session.
        Hello,
        /// Times the link; the answer comes at once.
        Probe => Probe::payload,
        /// Answers [`super::Benchmark`].
        Profile,
        /// Renews the lease.
        Heartbeat,
        /// The worker takes no further part.
        Leaving,
        /// Something went wrong inside the worker.
        Fault,
        /// Pipeline mode: the stage is loaded.
        Ready,
        /// Pipeline mode: a stage has done all backward passes of a step.
        StepReport,
        /// Pipeline mode: the loss of one batch of the held-out split.
        ValidationReport,
        /// Pipeline mode: a part of a snapshot lies in the store.
        SnapshotReady,
        /// Pipeline mode: answers a [`super::Decode`].
        Decoded => Decoded::payload,
        /// Block mode: the delta of a round lies in the store.
        DeltaReady,
        /// Block mode: scores of one batch of the held-out split.
        EvaluationReport,
    }
}

checked_struct! {
    /// What a worker is, said first thing.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Hello {
        /// [`crate::VERSION`] of the sender, so that a mismatch can be named in words.
        pub protocol: u8 => any,
        /// Build of the worker's program, for people to read.
        pub build: String => text(limits::LABEL),
        /// What kind of program it is.
        pub kind: WorkerKind => any,
        /// Name shown to the organizer.
        pub name: String => text(limits::NAME),
    }
}

/// What kind of program a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerKind {
    /// `cohort work`.
    Native,
    /// A tab.
    Browser,
}

discrete!(WorkerKind, Backend);

checked_struct! {
    /// A frame of `padding` bytes, to be answered with one of `answer` bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Probe {
        /// Comes back with the answer.
        pub number: u32 => any,
        /// Bytes after this header; what they are does not matter.
        pub padding: u32 => padding(limits::PROBE),
        /// Bytes that the answer shall have.
        pub answer: u32 => padding(limits::PROBE),
    }
}

impl Probe {
    fn payload(&self) -> Payload<'_> {
        Payload::Padding(self.padding)
    }
}

checked_struct! {
    /// What a worker measured of itself at the run's shapes.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Profile {
        /// Where it computes.
        pub backend: Backend => any,
        /// Adapter or processor, for people to read.
        pub device: String => text(limits::LABEL),
        /// Threads it computes on.
        pub threads: u32 => at_most(limits::THREADS),
        /// Memory the worker may use for its stage, in bytes; 0 when unknown.
        pub memory_bytes: u64 => at_most(limits::MEMORY_BYTES),
        /// One layer on one micro-batch.
        pub layer: PassSeconds => nested,
        /// The embedding on one micro-batch.
        pub embedding: PassSeconds => nested,
        /// Final norm, LM head and loss on one micro-batch, both ways.
        pub head_seconds: f64 => positive_seconds(),
        /// None where the link was not measured.
        pub link: Option<LinkSpeed> => optional(nested),
    }
}

checked_struct! {
    /// Renews the lease.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Heartbeat {}
}

checked_struct! {
    /// The worker takes no further part.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Leaving {
        /// One sentence.
        pub reason: String => text(limits::SENTENCE),
    }
}

checked_struct! {
    /// Something went wrong inside a worker.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Fault {
        /// The plan it held a part of in pipeline mode, the round in block mode.
        pub during: u64 => counter,
        /// What kind of fault it is.
        pub kind: FaultKind => any,
        /// One sentence.
        pub detail: String => text(limits::SENTENCE),
    }
}

/// What went wrong inside a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

discrete!(FaultKind);

impl FaultKind {
    /// For counters.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::BadTensor => "bad_tensor",
            FaultKind::NotFinite => "not_finite",
            FaultKind::Device => "device",
            FaultKind::Weights => "weights",
        }
    }
}

checked_struct! {
    /// The stage of a plan is loaded.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Ready {
        /// Number of the plan.
        pub epoch: u64 => counter,
    }
}

checked_struct! {
    /// A stage has done all backward passes of a step.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct StepReport {
        /// Number of the plan.
        pub epoch: u64 => counter,
        /// The step.
        pub step: u64 => counter,
        /// Sum of squares of the stage's accumulated gradients.
        pub squared_norm: f64 => within(0.0, limits::SQUARED_NORM),
        /// Mean cross-entropy of each micro-batch in nats, in order; empty unless the stage has the head.
        pub losses: Vec<f32> => list(limits::LOSSES, cross_entropy()),
        /// Where the time of the step went.
        pub timings: Timings => nested,
        /// How the device is.
        pub status: DeviceStatus => nested,
    }
}

checked_struct! {
    /// Mean cross-entropy, in nats, of one validation batch.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ValidationReport {
        /// Number of the plan.
        pub epoch: u64 => counter,
        /// Steps done.
        pub step: u64 => counter,
        /// From 0.
        pub batch: u32 => at_most(limits::VALIDATION_BATCHES),
        /// In nats.
        pub loss: f32 => cross_entropy(),
    }
}

checked_struct! {
    /// A part of a snapshot lies in the coordinator's store.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SnapshotReady {
        /// Number of the plan.
        pub epoch: u64 => counter,
        /// Number of optimizer steps the weights have seen.
        pub steps_done: u64 => counter,
        /// The part.
        pub blob: BlobRef => nested,
    }
}

checked_struct! {
    /// What a worker learned in a round lies in the coordinator's store.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct DeltaReady {
        /// The round.
        pub round: u64 => counter,
        /// The block.
        pub block: u32 => at_most(limits::BLOCKS as u64),
        /// The delta's file.
        pub blob: BlobRef => nested,
        /// Mean of the weighted loss over the local steps.
        pub loss: f32 => within(-1e-3, 1e12),
        /// Mean of the cross-entropy over the local steps, in nats; leaky, as the target is in the noisy input.
        pub cross_entropy: f32 => cross_entropy(),
        /// Where the time of the round went.
        pub timings: Timings => nested,
        /// How the device is.
        pub status: DeviceStatus => nested,
    }
}

checked_struct! {
    /// Scores of one batch.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct EvaluationReport {
        /// Rounds that the measured weights have seen.
        pub round: u64 => counter,
        /// From 0.
        pub batch: u32 => at_most(limits::VALIDATION_BATCHES),
        /// In nats per token.
        pub scores: Scores => nested,
    }
}
