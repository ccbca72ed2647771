//! What is trained and who holds which part: the shapes both sides must agree on.

use serde::{Deserialize, Serialize};

use crate::{blob::BlobRef, delta::DeltaEncoding, tensor::Encoding};

/// Where a worker computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The processor, with SIMD; WASM SIMD in a tab.
    Cpu,
    /// The graphics chip through burn; WebGPU in a tab.
    WebGpu,
}

/// A GPT-2: pre-LN, learned positions, causal attention, tanh GELU, MLP of 4d, layer norm epsilon 1e-5.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// V, rows of the token table and of the LM head.
    pub vocabulary: u32,
    /// Rows of the position table; the longest sequence the model can read.
    pub positions: u32,
    /// d, features per position.
    pub width: u32,
    /// Attention heads; divides `width`.
    pub heads: u32,
    pub layers: u32,
    /// Use the token table as LM head too.
    pub tie_embeddings: bool,
}

/// AdamW with decoupled weight decay on tensors of two or more dimensions, after clipping by the global norm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSpec {
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    pub weight_decay: f64,
    /// Largest global norm of the gradients.
    pub clip_norm: f64,
}

/// What a worker must know of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    pub name: String,
    pub model: ModelSpec,
    pub optimizer: OptimizerSpec,
    /// N, sequences in a micro-batch.
    pub sequences: u32,
    /// T, tokens in a sequence.
    pub context: u32,
    /// M, micro-batches in a step; 0 before it has been chosen.
    pub micro_batches: u32,
    /// Keep only a stage's inputs and compute its forward again in the backward pass.
    pub recompute: bool,
    /// Encoding of activations and gradients on the wire.
    pub wire: Encoding,
    /// What snapshots keep of AdamW's moments.
    pub moments: Moments,
    /// None in pipeline mode.
    pub blocks: Option<BlockSpec>,
}

/// Block mode: the model's layers in B denoisers, each trained on noise of its own range.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSpec {
    /// B; divides the model's layers.
    pub count: u32,
    /// Ends of the whole range of sigma, the standard deviation of the noise.
    pub sigma_min: f64,
    pub sigma_max: f64,
    /// Mean and standard deviation of ln(sigma), by which the range is cut into blocks.
    pub p_mean: f64,
    pub p_std: f64,
    /// How far a block's training range reaches into its neighbours': by the factor (hi / lo)^gamma at either end.
    pub gamma: f64,
    /// Encoding of what workers send back.
    pub delta: DeltaEncoding,
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

/// A contiguous part of the model: layers `first_layer..end_layer`, with the embedding before them
/// or the final norm, LM head and loss after them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    pub embedding: bool,
    pub first_layer: u32,
    pub end_layer: u32,
    pub head: bool,
}

/// A part's place on the way through the plan.
///
/// With untied embeddings each worker holds one hop. With tied ones the first worker also holds the
/// last hop, the head, so that the one table never leaves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hop {
    pub index: u32,
    pub part: Part,
}

/// Where a stage's weights come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WeightSource {
    /// Drawn from a counter-based generator: the same on every device.
    Seed(u64),
    /// Those parts of a snapshot that hold something of the stage; together they hold all of it.
    Snapshot(Vec<BlobRef>),
}

/// A worker's share of one plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub epoch: u64,
    /// This worker's hops, ascending.
    pub hops: Vec<Hop>,
    /// Hops in the whole plan.
    pub hop_count: u32,
    /// Optimizer steps the weights have seen; the next step's number.
    pub first_step: u64,
    /// M of this plan.
    pub micro_batches: u32,
    /// Most micro-batches this worker may have between forward and backward.
    pub window: u32,
    pub weights: WeightSource,
}
