//! What is trained and who holds which part: the shapes both sides must agree on.

use serde::{Deserialize, Serialize};

use crate::{
    blob::BlobRef,
    checked::{
        Checked, RuleResult, any, at_most, checked_struct, counter, discrete, list, nested, optional, text,
        within,
    },
    delta::DeltaEncoding,
    limits,
    tensor::Encoding,
};

/// Largest dimension of anything in a model.
const LARGEST_SIZE: u64 = 1 << 24;

discrete!(Encoding, Moments, DeltaEncoding);

/// Where a worker computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The processor, with SIMD; WASM SIMD in a tab.
    Cpu,
    /// The graphics chip through burn; WebGPU in a tab.
    WebGpu,
}

checked_struct! {
    /// A GPT-2: pre-LN, learned positions, causal attention, tanh GELU, MLP of 4d, layer norm epsilon 1e-5.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ModelSpec {
        /// V, rows of the token table and of the LM head.
        pub vocabulary: u32 => at_most(LARGEST_SIZE),
        /// Rows of the position table; the longest sequence the model can read.
        pub positions: u32 => at_most(LARGEST_SIZE),
        /// d, features per position.
        pub width: u32 => at_most(LARGEST_SIZE),
        /// Attention heads; divides `width`.
        pub heads: u32 => at_most(LARGEST_SIZE),
        /// Transformer layers.
        pub layers: u32 => at_most(limits::HOPS as u64),
        /// Use the token table as LM head too.
        pub tie_embeddings: bool => any,
    }
}

checked_struct! {
    /// AdamW with decoupled weight decay on tensors of two or more dimensions, after clipping by the global norm.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct OptimizerSpec {
        /// Decay of the first moment in a step.
        pub beta1: f64 => within(0.0, 1.0),
        /// Decay of the second moment in a step.
        pub beta2: f64 => within(0.0, 1.0),
        /// Added to the root of the second moment.
        pub epsilon: f64 => within(0.0, 1.0),
        /// Share of a weight taken away in a step, over the learning rate.
        pub weight_decay: f64 => within(0.0, 1e6),
        /// Largest global norm of the gradients.
        pub clip_norm: f64 => within(0.0, f64::MAX),
    }
}

impl OptimizerSpec {
    /// Factor for gradients of this global norm: `min(1, clip_norm / (norm + 1e-6))`, as PyTorch's
    /// `clip_grad_norm_` has it.
    pub fn clip_scale(&self, norm: f64) -> f64 {
        (self.clip_norm / (norm + 1e-6)).min(1.0)
    }
}

checked_struct! {
    /// What a worker must know of the run.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RunSpec {
        /// Name of the run.
        pub name: String => text(limits::NAME),
        /// The model.
        pub model: ModelSpec => nested,
        /// How weights are updated.
        pub optimizer: OptimizerSpec => nested,
        /// N, sequences in a micro-batch.
        pub sequences: u32 => at_most(LARGEST_SIZE),
        /// T, tokens in a sequence.
        pub context: u32 => at_most(LARGEST_SIZE),
        /// M, micro-batches in a step; 0 before it has been chosen.
        pub micro_batches: u32 => at_most(limits::LOSSES as u64),
        /// Keep only a stage's inputs and compute its forward again in the backward pass.
        pub recompute: bool => any,
        /// Encoding of activations and gradients on the wire.
        pub wire: Encoding => any,
        /// What snapshots keep of AdamW's moments.
        pub moments: Moments => any,
        /// The weights change. False in a run that only writes texts: workers hold no gradients and no moments.
        #[serde(default = "yes")]
        pub trains: bool => any,
        /// Bytes of keys and values that workers keep for texts, over all layers; 0 where they write none.
        #[serde(default)]
        pub cache_bytes: u64 => at_most(limits::MEMORY_BYTES),
        /// What block mode adds; None in pipeline mode.
        pub blocks: Option<BlockSpec> => optional(nested),
    }
}

/// Files of before there were runs that only write texts.
fn yes() -> bool {
    true
}

checked_struct! {
    /// Block mode: the model's layers in B denoisers, each trained on noise of its own range.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct BlockSpec {
        /// B; divides the model's layers.
        pub count: u32 => at_most(limits::BLOCKS as u64),
        /// Lower end of the whole range of sigma, the standard deviation of the noise.
        pub sigma_min: f64 => within(0.0, 1e9),
        /// Upper end of that range.
        pub sigma_max: f64 => within(0.0, 1e9),
        /// Mean of ln(sigma), in the normal distribution by whose quantiles the range is cut into blocks.
        pub p_mean: f64 => within(-1e3, 1e3),
        /// Standard deviation of that distribution.
        pub p_std: f64 => within(0.0, 1e3),
        /// How far a block's training range reaches into its neighbours': by the factor (hi / lo)^gamma at either end.
        pub gamma: f64 => within(0.0, 1e3),
        /// Encoding of what workers send back.
        pub delta: DeltaEncoding => any,
    }
}

/// What a snapshot keeps of the optimizer's state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moments {
    /// Both moments in f32: a run goes on from it as if nothing had happened.
    #[default]
    Full,
    /// Both in f16 with a scale per tensor: a third less to send, nearly the same afterwards.
    F16,
    /// Neither: two thirds less to send; AdamW starts afresh from it.
    None,
}

checked_struct! {
    /// A contiguous part of the model: layers `first_layer..end_layer`, with the embedding before them
    /// or the final norm, LM head and loss after them.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Part {
        /// Token and position tables.
        pub embedding: bool => any,
        /// The first layer, from 0.
        pub first_layer: u32 => at_most(limits::HOPS as u64),
        /// The layer after the last one; `first_layer` where there is none.
        pub end_layer: u32 => at_most(limits::HOPS as u64),
        /// Final norm, LM head and loss.
        pub head: bool => any,
    }
}

checked_struct! {
    /// A part of the model at its pipeline position, which the protocol calls a hop.
    ///
    /// An activation visits the positions in ascending order, its gradient in descending order.
    /// With untied embeddings each worker holds one hop. With tied ones the first worker also holds the
    /// last hop, the head, so that the one table never leaves it.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct Hop {
        /// The position, from 0.
        pub index: u32 => at_most(limits::HOPS as u64),
        /// What is computed there.
        pub part: Part => nested,
    }
}

/// Where a stage's weights come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightSource {
    /// Drawn from a counter-based generator: the same on every device.
    Seed(u64),
    /// Those parts of a snapshot that hold something of the stage; together they hold all of it.
    Snapshot(Vec<BlobRef>),
}

checked_struct! {
    /// A worker's share of one plan.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Assignment {
        /// Number of the plan.
        pub epoch: u64 => counter,
        /// This worker's hops, ascending.
        pub hops: Vec<Hop> => list(limits::HOPS, nested),
        /// Hops in the whole plan.
        pub hop_count: u32 => at_most(limits::HOPS as u64),
        /// Optimizer steps the weights have seen; the next step's number.
        pub first_step: u64 => counter,
        /// M of this plan.
        pub micro_batches: u32 => at_most(limits::LOSSES as u64),
        /// Most micro-batches this worker may have between forward and backward.
        pub window: u32 => at_most(limits::LOSSES as u64),
        /// Where the weights of its parts come from.
        pub weights: WeightSource => nested,
    }
}

impl Checked for WeightSource {
    fn check(&self) -> RuleResult {
        match self {
            WeightSource::Seed(_) => Ok(()),
            WeightSource::Snapshot(blobs) => list(limits::BLOBS, nested)(blobs),
        }
    }
}
