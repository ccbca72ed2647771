//! A run of block mode from its run.toml: what the machine and the keeper are made of.

use engine::block::{layers_per_block, schedule, shapes};
use protocol::spec::RunSpec;

use crate::{
    config::{MomentsName, RunConfig},
    rounds::{
        Keeper, RoundManifest,
        machine::{Machine, RoundSettings},
        manifest::Totals,
    },
    run::machine::Settings,
    shell::BlobStore,
    storage::{data_dir::DataDir, rounds},
};

/// Numbers in the whole model; None in pipeline mode.
pub fn numbers(run: &RunSpec) -> Option<u64> {
    let blocks = run.blocks.as_ref()?;
    let layers = layers_per_block(&run.model, blocks)?;
    let own: usize = shapes::of_block(&run.model, layers, 0).iter().map(|shape| shape.len()).sum();
    Some(shapes::table(&run.model).len() as u64 + u64::from(blocks.count) * own as u64)
}

/// Bytes that a replica takes in training: values, gradients, both moments, the base and the delta; and what each
/// layer keeps for the way back, with the logits.
pub fn replica_bytes(run: &RunSpec) -> u64 {
    let Some(layers) = run.blocks.as_ref().and_then(|blocks| layers_per_block(&run.model, blocks)) else {
        return 0;
    };
    let own: usize = shapes::of_replica(&run.model, layers, 0).iter().map(|shape| shape.len()).sum();
    let [n, t, v] = [run.sequences, run.context, run.model.vocabulary].map(u64::from);
    let [d, heads] = [run.model.width, run.model.heads].map(u64::from);
    // As in `plan::memory::layer`.
    let kept = n * t * (34 * d + 3 * heads * t) * u64::from(layers);
    24 * own as u64 + 4 * (kept + 2 * n * t * v + 6 * n * t * d)
}

/// What the machine needs beside the settings of any run.
///
/// # Errors
///
/// A schedule of noise that makes no sense, in words.
pub fn round_settings(config: &RunConfig, run: &RunSpec) -> anyhow::Result<RoundSettings> {
    let blocks = run.blocks.as_ref().ok_or(engine::block::BlockError::NotBlockMode)?;
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
        parameters: numbers(run).unwrap_or_default(),
        aggregator: aggregator_in_words(config),
    })
}

fn aggregator_in_words(config: &RunConfig) -> String {
    use crate::config::{AggregatorName::*, OuterName};
    let rule = match config.rounds.aggregator {
        Mean => "mean".to_owned(),
        ClipToMedianNorm => "mean, clipped to the median length".to_owned(),
        TrimmedMean => format!("mean without the {} largest and smallest", config.rounds.trim),
        Median => "median".to_owned(),
        CentredClip => "centred clipping".to_owned(),
    };
    match config.rounds.outer {
        OuterName::Mean => rule,
        OuterName::Nesterov => format!("{rule}, Nesterov momentum"),
    }
}

/// The machine, and the keeper with the weights it starts from, which are published before this returns.
pub async fn prepare(
    config: &RunConfig,
    settings: Settings,
    blobs: &BlobStore,
    data_dir: &DataDir,
    resume: bool,
) -> anyhow::Result<(Machine, Keeper)> {
    let run = settings.run.clone();
    let rules = config.rounds.rules(config.training.learning_rate);
    let manifest = if resume { rounds::list(&data_dir.snapshots())?.pop() } else { None };
    let keeper = match &manifest {
        Some(manifest) => crate::shell::resume_rounds(blobs, manifest, &run, rules).await?,
        None => Keeper::draw(&run, settings.seed, rules)?,
    };
    let published = match &manifest {
        Some(manifest) => manifest.published.clone(),
        None => {
            let first = |published| RoundManifest {
                run: run.clone(),
                updates: vec![0; run.blocks.map_or(0, |blocks| blocks.count as usize)],
                totals: Totals::default(),
                work: vec![],
                published,
            };
            crate::shell::publish_round(blobs, data_dir, &keeper, first, 0).await?
        }
    };
    let rounds = round_settings(config, &run)?;
    Ok((Machine::new(settings, rounds, published, manifest), keeper))
}
