//! A run, with every default filled in.

use std::{path::PathBuf, time::Duration};

use protocol::{spec::Moments, tensor::Encoding};
use serde::{Serialize, Serializer};

use crate::{
    data::{corpus::Source, tokenizer::TokenizerKind, windows::WindowShape},
    plan::Stages,
};

/// A checked `run.toml`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunConfig {
    /// 1 to 64 letters, digits, `.`, `_` and `-`.
    pub name: String,
    pub model: ModelConfig,
    pub data: DataConfig,
    pub training: TrainingConfig,
    pub pipeline: PipelineConfig,
    pub snapshots: SnapshotConfig,
    pub session: SessionConfig,
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

fn stages_as_value<S: Serializer>(stages: &Stages, serializer: S) -> Result<S::Ok, S::Error> {
    match stages {
        Stages::Auto => "auto".serialize(serializer),
        Stages::Exactly(count) => count.serialize(serializer),
    }
}
