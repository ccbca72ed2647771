//! From a run's file to what its decisions need.

use control::{Settings, block::RoundSettings, learning_rate::LearningRate, pipeline::plan};
use engine::denoiser::{BlockError, layers_per_block, schedule, shapes};
use protocol::spec::RunSpec;

use crate::{
    config::{AggregatorName, ModeName, MomentsName, OuterName, RoundsConfig, RunConfig, TrainingConfig},
    data::Dataset,
};

/// The rate by step.
pub fn learning_rate(training: &TrainingConfig) -> LearningRate {
    LearningRate {
        peak: training.learning_rate,
        floor: training.final_learning_rate,
        warmup_steps: training.warmup_steps,
        total_steps: training.steps,
    }
}

/// Of a run that takes no steps, and so never has done all of them.
const NO_LAST_STEP: u64 = 1 << 53;

/// What does not change during a run, in either mode.
pub fn settings(config: &RunConfig, dataset: &Dataset, validation_batches: u64) -> Settings {
    let training = &config.training;
    Settings {
        run: config.run_spec(dataset.tokenizer.vocabulary()),
        steps: if config.mode == ModeName::Serve { NO_LAST_STEP } else { training.steps },
        seed: training.seed,
        start_with: match config.mode {
            ModeName::Pipeline | ModeName::Serve => config.pipeline.start_with,
            ModeName::Block => config.rounds.start_with,
        },
        learning_rate: learning_rate(training),
        validate_every: training.validate_every,
        validation_batches: u64::from(training.validation_batches).min(validation_batches) as u32,
        snapshot_every: config.snapshots.every,
        heartbeat: config.session.heartbeat(),
        lease: config.session.lease(),
        step_deadline: config.session.step_deadline(),
        max_workers: config.session.max_workers,
        texts_share: config.serving.share,
        corpus: dataset.corpus.clone(),
        tokenizer: config.data.tokenizer.name().to_string(),
        train_tokens: dataset.tokens.train_tokens(),
    }
}

/// Numbers in the whole model.
pub fn numbers(run: &RunSpec) -> u64 {
    numbers_of_blocks(run).unwrap_or_else(|| run.model.parameters())
}

/// Numbers in the whole model; None in pipeline mode.
fn numbers_of_blocks(run: &RunSpec) -> Option<u64> {
    let blocks = run.blocks.as_ref()?;
    let layers = layers_per_block(&run.model, blocks)?;
    let own: usize = shapes::of_block(&run.model, layers, 0).iter().map(|shape| shape.len()).sum();
    Some(shapes::table(&run.model).len() as u64 + u64::from(blocks.count) * own as u64)
}

/// Bytes that a replica takes in training: values, gradients, both moments, the base and the delta; and what each
/// layer keeps for the way back, with the logits.
fn replica_bytes(run: &RunSpec) -> u64 {
    let Some(layers) = run.blocks.as_ref().and_then(|blocks| layers_per_block(&run.model, blocks)) else {
        return 0;
    };
    let own: usize = shapes::of_replica(&run.model, layers, 0).iter().map(|shape| shape.len()).sum();
    let [n, t, v] = [run.sequences, run.context, run.model.vocabulary].map(u64::from);
    let d = u64::from(run.model.width);
    let kept = plan::memory::kept_floats(run) * u64::from(layers);
    24 * own as u64 + 4 * (kept + 2 * n * t * v + 6 * n * t * d)
}

/// What block mode needs beside the settings of any run.
///
/// # Errors
/// A schedule of noise that makes no sense.
pub fn round_settings(config: &RunConfig, run: &RunSpec) -> Result<RoundSettings, BlockError> {
    let blocks = run.blocks.as_ref().ok_or(BlockError::NotBlockMode)?;
    let schedule = schedule(blocks)?;
    let local_steps = config.rounds.local_steps;
    Ok(RoundSettings {
        local_steps,
        rounds: config.training.steps.div_ceil(u64::from(local_steps)),
        deadline: config.rounds.deadline_policy(),
        fresh_moments: config.rounds.moments == MomentsName::Fresh,
        evaluator: config.rounds.evaluate_by,
        draws: config.rounds.draws,
        ranges: (0..blocks.count).map(|block| schedule.range(block)).collect(),
        layers_per_block: run.model.layers / blocks.count,
        replica_bytes: replica_bytes(run),
        parameters: numbers(run),
        aggregator: aggregator_in_words(&config.rounds),
    })
}

fn aggregator_in_words(rounds: &RoundsConfig) -> String {
    let rule = match rounds.aggregator {
        AggregatorName::Mean => "mean".to_owned(),
        AggregatorName::ClipToMedianNorm => "mean, clipped to the median length".to_owned(),
        AggregatorName::TrimmedMean => format!("mean without the {} largest and smallest", rounds.trim),
        AggregatorName::Median => "median".to_owned(),
        AggregatorName::CentredClip => "centred clipping".to_owned(),
    };
    match rounds.outer {
        OuterName::Mean => rule,
        OuterName::Nesterov => format!("{rule}, Nesterov momentum"),
    }
}
