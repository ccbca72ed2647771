//! What the rest of the program takes from the fields.

use std::time::Duration;

use control::block::deadline::DeadlinePolicy;
use engine::aggregation::{Aggregator, OuterStep, server::Rules};
use protocol::{
    delta::DeltaEncoding,
    spec::{BlockSpec, ModelSpec, OptimizerSpec, RunSpec},
};

use super::{
    block_fields::RoundsConfig,
    choices::{AggregatorName, DeltaName, ModeName, OuterName, ServingPlace},
    fields::{DataConfig, ServingConfig, SessionConfig, TrainingConfig},
    run_config::RunConfig,
};
use crate::data::{TokenizerChoice, windows::WindowShape};

/// Tokens on which a device measures itself in a run that only writes texts.
const MEASURED_TOKENS: u32 = 64;

impl ServingConfig {
    /// [`ServingConfig::cache_mb`].
    pub fn cache_bytes(&self) -> u64 {
        u64::from(self.cache_mb) * 1_000_000
    }
}

impl DataConfig {
    /// The tokenizer that the fields ask for.
    pub fn tokenizer_choice(&self) -> TokenizerChoice<'_> {
        let files = self.tokenizer_files.as_deref();
        TokenizerChoice { kind: self.tokenizer, files, end_of_text: self.end_of_text }
    }
}

impl RunConfig {
    /// What workers must know, with V from the run's tokenizer.
    pub fn run_spec(&self, vocabulary: u32) -> RunSpec {
        let Self { name, model, training, pipeline, .. } = self;
        let trains = self.mode != ModeName::Serve;
        RunSpec {
            name: name.clone(),
            model: ModelSpec {
                vocabulary,
                positions: model.context,
                width: model.width,
                heads: model.heads,
                layers: model.layers,
                tie_embeddings: model.tie_embeddings,
            },
            optimizer: OptimizerSpec {
                beta1: training.beta1,
                beta2: training.beta2,
                epsilon: training.epsilon,
                weight_decay: training.weight_decay,
                clip_norm: training.clip_norm,
            },
            // Without training they are the shapes at which devices measure themselves.
            sequences: if trains { training.sequences } else { 1 },
            context: if trains { training.context } else { model.context.min(MEASURED_TOKENS) },
            micro_batches: if trains { training.micro_batches.unwrap_or(0) } else { 1 },
            recompute: pipeline.recompute,
            wire: pipeline.wire,
            moments: self.snapshots.moments,
            trains,
            cache_bytes: match self.serving.r#where {
                ServingPlace::Workers => self.serving.cache_bytes(),
                ServingPlace::Off | ServingPlace::Coordinator => 0,
            },
            blocks: (self.mode == ModeName::Block).then(|| BlockSpec {
                count: self.blocks.count,
                sigma_min: self.blocks.sigma_min,
                sigma_max: self.blocks.sigma_max,
                p_mean: self.blocks.p_mean,
                p_std: self.blocks.p_std,
                gamma: self.blocks.gamma,
                delta: self.rounds.encoding(),
            }),
        }
    }
}

impl TrainingConfig {
    /// Size of a micro-batch.
    pub fn window_shape(&self) -> WindowShape {
        WindowShape { sequences: self.sequences, context: self.context }
    }
}

impl SessionConfig {
    /// [`SessionConfig::heartbeat_seconds`].
    pub fn heartbeat(&self) -> Duration {
        Duration::from_secs_f64(self.heartbeat_seconds)
    }

    /// [`SessionConfig::step_deadline_seconds`].
    pub fn step_deadline(&self) -> Duration {
        Duration::from_secs_f64(self.step_deadline_seconds)
    }

    /// [`SessionConfig::lease_seconds`].
    pub fn lease(&self) -> Duration {
        Duration::from_secs_f64(self.lease_seconds)
    }
}

impl RoundsConfig {
    /// Encoding of deltas.
    pub fn encoding(&self) -> DeltaEncoding {
        match self.delta {
            DeltaName::F32 => DeltaEncoding::F32,
            DeltaName::F16 => DeltaEncoding::F16,
            DeltaName::Int8 => DeltaEncoding::Int8,
            DeltaName::TopK => DeltaEncoding::TopK { per_mille: self.top_k_per_mille },
        }
    }

    /// How a block's deltas become one.
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

    /// What is done with the averaged delta.
    pub fn outer(&self) -> OuterStep {
        match self.outer {
            OuterName::Mean => OuterStep::Mean,
            OuterName::Nesterov => {
                OuterStep::Nesterov { learning_rate: self.outer_learning_rate, momentum: self.outer_momentum }
            }
        }
    }

    /// How long a round may take.
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
