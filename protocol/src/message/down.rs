//! Messages from the coordinator to a worker.

use serde::{Deserialize, Serialize};

use super::{CloseTexts, Decode, Payload, TensorFrame, described, messages, relayed::tensor_message};
use crate::{
    blob::BlobRef,
    checked::{
        Checked, RuleResult, any, at_most, checked_struct, counter, discrete, list, nested, optional,
        padding, text, within,
    },
    limits,
    refusal::Refusal,
    spec::{Assignment, RunSpec},
    tensor::TensorMeta,
};

messages! {
    /// From the coordinator to a worker.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub enum Down {
        /// Answers a Hello.
        Welcome,
        /// Says why a frame or a worker is turned away; the connection closes.
        Refuse,
        /// Answers a probe.
        ProbeAnswer => ProbeAnswer::payload,
        /// Answers a heartbeat.
        HeartbeatAnswer,
        /// Measure yourself at the run's shapes and answer with a [`super::Profile`].
        Benchmark,
        /// The run has ended.
        Drain,
        /// Pipeline mode: a share of a plan.
        Assign,
        /// Pipeline mode: token ids [N, T] for the first hop.
        Tokens => Tokens::payload,
        /// Pipeline mode: the ids [N, T] that follow them, for the hop with the head.
        Targets => Targets::payload,
        /// Pipeline mode: update the weights.
        Apply,
        /// Pipeline mode: the plan has ended.
        Revoke,
        /// Pipeline mode: a snapshot is safe.
        SnapshotKept,
        /// Pipeline mode: new tokens of texts, through a hop.
        Decode => Decode::payload,
        /// Pipeline mode: texts that have ended.
        CloseTexts,
        /// Block mode: a part in a round.
        Round => Round::payload,
        /// Block mode: what became of a delta.
        DeltaOutcome,
        /// Block mode: measure the whole model.
        Evaluate => Evaluate::payload,
    }
}

checked_struct! {
    /// Who you are, what is trained, how to stay alive.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Welcome {
        /// Number of the worker in the run.
        pub worker: u64 => counter,
        /// Bearer token for `/v1/blobs`, good for this session.
        pub token: String => text(limits::TOKEN),
        /// What is trained.
        pub run: RunSpec => nested,
        /// Send something at least this often, in milliseconds ...
        pub heartbeat_ms: u32 => any,
        /// ... or be taken for vanished after this long.
        pub lease_ms: u32 => any,
    }
}

/// Why a frame or a worker is turned away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refuse(pub Refusal);

impl Checked for Refuse {
    fn check(&self) -> RuleResult {
        self.0.check()
    }
}

checked_struct! {
    /// Answers the probe of this number.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ProbeAnswer {
        /// As in the probe.
        pub number: u32 => any,
        /// Bytes after this header.
        pub padding: u32 => padding(limits::PROBE),
    }
}

impl ProbeAnswer {
    fn payload(&self) -> Payload<'_> {
        Payload::Padding(self.padding)
    }
}

checked_struct! {
    /// Answers a heartbeat, so that a worker hears from the coordinator within its lease: a browser does not show the
    /// pings of a WebSocket.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct HeartbeatAnswer {}
}

checked_struct! {
    /// Measure yourself at the run's shapes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Benchmark {}
}

checked_struct! {
    /// The run has ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Drain {
        /// How it ended.
        pub reason: DrainReason => any,
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrainReason {
    /// The run has done its last step.
    Finished,
    /// The organizer stopped the run.
    Stopped,
}

discrete!(DrainReason);

/// A worker's share of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assign(pub Assignment);

impl Checked for Assign {
    fn check(&self) -> RuleResult {
        self.0.check()
    }
}

tensor_message! {
    /// Token ids [N, T] for the first hop.
    Tokens
}

tensor_message! {
    /// Target ids [N, T] for the hop with the head.
    Targets
}

checked_struct! {
    /// All stages have reported: update the weights.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Apply {
        /// Number of the plan.
        pub epoch: u64 => counter,
        /// The step.
        pub step: u64 => counter,
        /// Factor for the gradients, from the global norm.
        pub clip_scale: f64 => within(0.0, 1.0),
        /// AdamW's rate in this step.
        pub learning_rate: f64 => within(0.0, 1e6),
        /// Upload weights and optimizer state once updated.
        pub snapshot: bool => any,
    }
}

checked_struct! {
    /// The plan has ended: drop its stage and wait for the next one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Revoke {
        /// Number of the plan.
        pub epoch: u64 => counter,
    }
}

checked_struct! {
    /// The snapshot of this many steps is safe: copies of older ones may go.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SnapshotKept {
        /// Optimizer steps its weights have seen.
        pub steps_done: u64 => counter,
    }
}

checked_struct! {
    /// A worker's part in a round of block mode, with the windows to train on behind the header.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Round {
        /// What to do.
        pub task: RoundTask => nested,
        /// Token ids [H, N, T + 1].
        pub windows: TensorMeta => described,
    }
}

impl Round {
    fn payload(&self) -> Payload<'_> {
        Payload::Tensor(&self.windows)
    }
}

checked_struct! {
    /// Train one block for H local steps.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RoundTask {
        /// Number of the round; also the version of the weights it starts from.
        pub round: u64 => counter,
        /// The block to train.
        pub block: u32 => at_most(limits::BLOCKS as u64),
        /// The block's own weights.
        pub base: BlobRef => nested,
        /// The table that all blocks share.
        pub table: BlobRef => nested,
        /// Key of the noise: with it, the windows and the weights, anybody can do the same work again.
        pub seed: u64 => any,
        /// Learning rate of each of the H local steps.
        pub learning_rates: Vec<f64> => list(limits::LOCAL_STEPS, within(0.0, 1e6)),
        /// Start AdamW's moments anew; false keeps those of the last round.
        pub fresh: bool => any,
        /// A delta later than this, from now, will not be taken.
        pub deadline_ms: u64 => counter,
    }
}

checked_struct! {
    /// What became of a worker's delta.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct DeltaOutcome {
        /// The round of the delta.
        pub round: u64 => counter,
        /// The block of the delta.
        pub block: u32 => at_most(limits::BLOCKS as u64),
        /// None: accepted. Else why not, in words.
        pub refused: Option<String> => optional(text(limits::SENTENCE)),
    }
}

checked_struct! {
    /// A measurement of the whole model, with the held-out windows behind the header.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Evaluate {
        /// What to measure.
        pub task: EvaluationTask => nested,
        /// Token ids [N, T + 1].
        pub windows: TensorMeta => described,
    }
}

impl Evaluate {
    fn payload(&self) -> Payload<'_> {
        Payload::Tensor(&self.windows)
    }
}

checked_struct! {
    /// Measure the whole model on one batch of the held-out split.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct EvaluationTask {
        /// Rounds the weights have seen.
        pub round: u64 => counter,
        /// From 0.
        pub batch: u32 => at_most(limits::VALIDATION_BATCHES),
        /// One per block, in order.
        pub blocks: Vec<BlobRef> => list(limits::BLOBS, nested),
        /// The table that all blocks share.
        pub table: BlobRef => nested,
        /// Key of the noise.
        pub seed: u64 => any,
        /// K of the scores with several draws.
        pub draws: u32 => at_most(limits::DRAWS),
    }
}
