//! `cohort recheck`: do accepted work of block mode again, and compare.

use std::path::Path;

use anyhow::{Context, ensure};
use protocol::blob::BlobRef;

use crate::{
    config::RunConfig,
    data::Dataset,
    rounds::{
        local_steps,
        manifest::Work,
        recheck::{RecheckError, distance, redo, tolerance},
        windows,
    },
    run::event::WorkerId,
    storage::{data_dir::DataDir, rounds},
};

/// One piece of work, looked at again.
#[derive(Debug)]
pub struct Finding {
    pub round: u64,
    pub worker: WorkerId,
    pub block: u32,
    /// Distance over length; or why it could not be done again.
    pub outcome: Result<f64, RecheckError>,
    pub tolerance: f64,
}

impl Finding {
    /// Whether it lies further off than rounding explains.
    pub fn is_off(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|distance| *distance > self.tolerance)
    }
}

/// All work whose weights the data directory still has.
///
/// # Errors
///
/// A folder that holds no run of block mode, or files in it that cannot be read.
pub fn recheck(folder: &Path) -> anyhow::Result<Vec<Finding>> {
    let (config, data_dir) = DataDir::look_into(folder)?;
    let dataset = dataset(&config, &data_dir)?;
    let run = config.run_spec(dataset.tokenizer.vocabulary());
    ensure!(run.blocks.is_some(), "{} holds a run of pipeline mode, which has no rounds", folder.display());
    let training = &config.training;
    let mut train = dataset.train_windows(training.seed, training.window_shape(), 1)?;
    let read = |blob: BlobRef| {
        let path = data_dir.blobs().join(blob.hash.to_string());
        std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let manifests = rounds::list(&data_dir.snapshots())?;
    let mut findings = Vec::new();
    for pair in manifests.windows(2) {
        let [before, after] = pair else { continue };
        let round = before.published.round;
        if after.published.round != round + 1 {
            continue;
        }
        let range = local_steps::of_round(round, config.rounds.local_steps, training.steps);
        let steps = (range.end - range.start) as u32;
        let rate = crate::serve::learning_rate(training);
        let rates: Vec<f64> = range.map(|step| rate.at(step)).collect();
        for work in &after.work {
            let files = [read(before.published.blocks[work.block as usize])?, read(before.published.table)?];
            let slots = config.session.max_workers;
            let windows =
                windows::of_round(&mut train, round, work.slot, steps, config.rounds.local_steps, slots);
            let sent = read(work.delta)?;
            let again = |work: &Work| -> Result<f64, RecheckError> {
                let redone = redo(&run, training.seed, round, work, &files, windows, rates.clone())?;
                distance(&run, work, &before.published, &sent, &redone)
            };
            findings.push(Finding {
                round,
                worker: work.worker,
                block: work.block,
                outcome: again(work),
                tolerance: tolerance(config.rounds.encoding()),
            });
        }
    }
    Ok(findings)
}

/// The run's own data, from its cache where it is there.
pub fn dataset(config: &RunConfig, data_dir: &DataDir) -> anyhow::Result<Dataset> {
    let data = &config.data;
    Ok(Dataset::prepare(
        &data.source,
        data.tokenizer,
        data.tokenizer_files.as_deref(),
        data.validation_fraction,
        &data_dir.tokens(),
    )?)
}
