//! A run, with every default filled in.

use std::{path::PathBuf, time::Duration};

use engine::aggregate::{Aggregator, OuterStep};
use protocol::{delta::DeltaEncoding, spec::Moments, tensor::Encoding};
use serde::{Serialize, Serializer};

use crate::{
    data::{corpus::Source, tokenizer::TokenizerKind, windows::WindowShape},
    plan::Stages,
    rounds::{deadline::DeadlinePolicy, evaluation::Evaluator, keeper::Rules},
};

/// A checked `run.toml`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunConfig {
    /// 1 to 64 letters, digits, `.`, `_` and `-`.
    pub name: String,
    pub mode: ModeName,
    pub model: ModelConfig,
    pub data: DataConfig,
    pub training: TrainingConfig,
    pub pipeline: PipelineConfig,
    pub blocks: BlocksConfig,
    pub rounds: RoundsConfig,
    pub snapshots: SnapshotConfig,
    pub session: SessionConfig,
}

/// `mode`: how the model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeName {
    /// A GPT-2 cut into stages.
    Pipeline,
    /// Denoising blocks, trained apart and averaged in rounds.
    Block,
}

/// `[blocks]`: the model of block mode, whose layers are `model.layers` in `count` blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlocksConfig {
    /// B; divides `model.layers`.
    pub count: u32,
    pub sigma_min: f64,
    pub sigma_max: f64,
    /// Mean and standard deviation of ln(sigma).
    pub p_mean: f64,
    pub p_std: f64,
    /// How far a block's training range reaches into its neighbours'.
    pub gamma: f64,
}

/// `[rounds]`: how block mode trains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoundsConfig {
    /// H, local steps of a worker in a round.
    pub local_steps: u32,
    /// Measured workers to wait for before the first round.
    pub start_with: u32,
    /// Encoding of what workers send back.
    pub delta: DeltaName,
    /// Share of the numbers that `delta = "topk"` sends, in thousandths.
    pub top_k_per_mille: u32,
    pub aggregator: AggregatorName,
    /// Contributions that `trimmed_mean` drops at either end.
    pub trim: u32,
    /// Radius of `centred_clip`; None: the median length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_radius: Option<f64>,
    pub clip_iterations: u32,
    pub outer: OuterName,
    pub outer_learning_rate: f64,
    pub outer_momentum: f64,
    /// Seconds that a round may take; None: learned from arrivals.
    #[serde(serialize_with = "seconds_or_adaptive")]
    pub deadline: Option<f64>,
    /// Of an adaptive deadline: the share of the replicas that should arrive in time, ...
    pub target_participation: f64,
    /// ... the share below which a round goes on past its deadline, ...
    pub least_participation: f64,
    /// ... and for how many seconds at most.
    pub longest_seconds: f64,
    pub moments: MomentsName,
    /// A delta may be this many times as long as the typical one of its block; 0: any length.
    pub norm_limit: f64,
    pub evaluate_by: Evaluator,
    /// K, draws of the scores with several.
    pub draws: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeltaName {
    F32,
    F16,
    Int8,
    TopK,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AggregatorName {
    Mean,
    ClipToMedianNorm,
    TrimmedMean,
    Median,
    CentredClip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OuterName {
    Mean,
    Nesterov,
}

/// What becomes of AdamW's moments between two rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MomentsName {
    /// They stay on the worker while it has the block.
    Kept,
    /// Every round begins without: any replica's round can be done again from the published weights alone.
    Fresh,
}

impl RoundsConfig {
    pub fn encoding(&self) -> DeltaEncoding {
        match self.delta {
            DeltaName::F32 => DeltaEncoding::F32,
            DeltaName::F16 => DeltaEncoding::F16,
            DeltaName::Int8 => DeltaEncoding::Int8,
            DeltaName::TopK => DeltaEncoding::TopK { per_mille: self.top_k_per_mille },
        }
    }

    pub fn aggregator(&self) -> Aggregator {
        match self.aggregator {
            AggregatorName::Mean => Aggregator::Mean,
            AggregatorName::ClipToMedianNorm => Aggregator::ClipToMedianNorm,
            AggregatorName::TrimmedMean => Aggregator::TrimmedMean { trim: self.trim },
            AggregatorName::Median => Aggregator::Median,
            AggregatorName::CentredClip => {
                Aggregator::CentredClip { radius: self.clip_radius, iterations: self.clip_iterations }
            }
        }
    }

    pub fn outer(&self) -> OuterStep {
        match self.outer {
            OuterName::Mean => OuterStep::Mean,
            OuterName::Nesterov => {
                OuterStep::Nesterov { learning_rate: self.outer_learning_rate, momentum: self.outer_momentum }
            }
        }
    }

    pub fn deadline_policy(&self) -> DeadlinePolicy {
        match self.deadline {
            Some(seconds) => DeadlinePolicy::Fixed { seconds },
            None => DeadlinePolicy::Adaptive {
                target: self.target_participation,
                floor: self.least_participation,
                longest: self.longest_seconds,
            },
        }
    }

    /// How deltas become weights, with training at this rate.
    pub fn rules(&self, learning_rate: f64) -> Rules {
        // AdamW moves a weight by about the rate a step; ten times that is absurd. Top-k saves up over rounds.
        let saved = if self.delta == DeltaName::TopK { 10.0 } else { 1.0 };
        Rules {
            aggregator: self.aggregator(),
            outer: self.outer(),
            largest: (10.0 * saved * f64::from(self.local_steps) * learning_rate) as f32,
            norm_limit: (self.norm_limit > 0.0).then_some(self.norm_limit),
            suspicious: true,
        }
    }
}

/// `[model]`: shapes of a GPT-2. `preset` fills them in; fields beside it win.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelConfig {
    pub layers: u32,
    /// d, features per position.
    pub width: u32,
    /// Attention heads; divides `width`.
    pub heads: u32,
    /// Rows of the position table: the longest sequence the model can read.
    pub context: u32,
    /// Use the token table as LM head too.
    pub tie_embeddings: bool,
}

/// A name for a model's shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    pub layers: u32,
    pub width: u32,
    pub heads: u32,
    pub context: u32,
}

/// The presets of `model.preset`, smallest first; the first is the default.
pub const PRESETS: [Preset; 5] = [
    Preset { name: "nano", layers: 3, width: 48, heads: 3, context: 64 },
    Preset { name: "micro", layers: 4, width: 128, heads: 4, context: 128 },
    Preset { name: "mini", layers: 12, width: 256, heads: 8, context: 256 },
    Preset { name: "gpt2", layers: 12, width: 768, heads: 12, context: 1024 },
    Preset { name: "gpt2-medium", layers: 24, width: 1024, heads: 16, context: 1024 },
];

/// `[data]`
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DataConfig {
    #[serde(serialize_with = "source_as_text")]
    pub source: Source,
    pub tokenizer: TokenizerKind,
    /// Folder of `encoder.json` and `vocab.bpe` for the tokenizer gpt2; None: the ones in the binary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer_files: Option<PathBuf>,
    /// Share of the tokens, at the end of the text, that is held out: 0 to 0.5.
    pub validation_fraction: f64,
}

/// `[training]`
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainingConfig {
    /// Optimizer steps of the whole run.
    pub steps: u64,
    /// M, micro-batches in a step; None has it chosen at the first plan.
    #[serde(serialize_with = "count_or_auto")]
    pub micro_batches: Option<u32>,
    /// N, sequences in a micro-batch.
    pub sequences: u32,
    /// T, tokens in a sequence; at most `model.context`.
    pub context: u32,
    /// Of the weights and of the order of the data.
    pub seed: u64,
    /// Rate at the end of the warm-up.
    pub learning_rate: f64,
    /// Steps of linear warm-up; 0 starts at the full rate.
    pub warmup_steps: u64,
    /// Rate at the last step, down a cosine.
    pub final_learning_rate: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    pub weight_decay: f64,
    /// Largest global norm of the gradients.
    pub clip_norm: f64,
    /// Steps between measurements on the held-out split; 0: never.
    pub validate_every: u64,
    /// Batches of one measurement, each of N sequences.
    pub validation_batches: u32,
}

impl TrainingConfig {
    /// Size of a micro-batch.
    pub fn window_shape(&self) -> WindowShape {
        WindowShape { sequences: self.sequences, context: self.context }
    }

    /// Whether the held-out split is measured once `steps_done` steps are done.
    pub fn validates_after(&self, steps_done: u64) -> bool {
        self.validate_every > 0
            && (steps_done == self.steps || steps_done.is_multiple_of(self.validate_every))
    }
}

/// `[pipeline]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PipelineConfig {
    #[serde(serialize_with = "stages_as_value")]
    pub stages: Stages,
    /// Encoding of activations and gradients: F32, F16 or Int8.
    pub wire: Encoding,
    /// Keep only a stage's inputs and compute its forward again in the backward pass.
    pub recompute: bool,
    /// Measured workers to wait for before the first step.
    pub start_with: u32,
}

/// `[snapshots]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotConfig {
    /// Steps between snapshots.
    pub every: u64,
    /// Newest snapshots to keep on disk.
    pub keep: u32,
    pub moments: Moments,
}

impl SnapshotConfig {
    /// Whether a snapshot is taken once `steps_done` of `steps` steps are done; always at the end.
    pub fn due_after(&self, steps_done: u64, steps: u64) -> bool {
        steps_done == steps || steps_done.is_multiple_of(self.every)
    }
}

/// `[session]`
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionConfig {
    /// A worker says something at least this often.
    pub heartbeat_seconds: f64,
    /// A worker not heard from for this long has vanished.
    pub lease_seconds: f64,
    /// A plan of which nothing has been heard for this long is given up, and the steps since the last snapshot are
    /// done again.
    pub step_deadline_seconds: f64,
    /// Workers connected at a time.
    pub max_workers: u32,
}

impl SessionConfig {
    pub fn heartbeat(&self) -> Duration {
        Duration::from_secs_f64(self.heartbeat_seconds)
    }

    pub fn step_deadline(&self) -> Duration {
        Duration::from_secs_f64(self.step_deadline_seconds)
    }

    pub fn lease(&self) -> Duration {
        Duration::from_secs_f64(self.lease_seconds)
    }
}

/// Names of sources that `data.source` does not take for a path.
pub const NAMED_SOURCES: [&str; 4] = ["webster", "wikitext-2", "wikitext-103", "shakespeare"];

fn source_as_text<S: Serializer>(source: &Source, serializer: S) -> Result<S::Ok, S::Error> {
    match source {
        Source::Webster => "webster".serialize(serializer),
        // A file may bear the name of a source.
        Source::Path(path) if NAMED_SOURCES.iter().any(|name| path.as_os_str() == *name) => {
            PathBuf::from(".").join(path).serialize(serializer)
        }
        Source::Path(path) => path.serialize(serializer),
    }
}

fn count_or_auto<S: Serializer>(count: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
    match count {
        None => "auto".serialize(serializer),
        Some(count) => count.serialize(serializer),
    }
}

fn seconds_or_adaptive<S: Serializer>(seconds: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match seconds {
        None => "adaptive".serialize(serializer),
        Some(seconds) => seconds.serialize(serializer),
    }
}

fn stages_as_value<S: Serializer>(stages: &Stages, serializer: S) -> Result<S::Ok, S::Error> {
    match stages {
        Stages::Auto => "auto".serialize(serializer),
        Stages::Exactly(count) => count.serialize(serializer),
    }
}
