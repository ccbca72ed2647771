//! `cohort recheck`: do accepted work of block mode again, and compare.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use control::block::{RoundManifest, Work, local_steps, seeds};
use engine::denoiser::recheck::{RecheckError, Step, distance, redo, tolerance};
use futures::executor::block_on;
use protocol::{blob::BlobRef, worker_id::WorkerId};

use super::serve::settings::learning_rate;
use crate::{
    data::{Dataset, block_windows},
    storage::{data_dir::DataDir, rounds},
};

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Data directory of the run, such as cohort-data/<name of the run>.
    data_dir: PathBuf,
}

pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let data_dir = &arguments.data_dir;
    let findings = recheck(data_dir)?;
    if findings.is_empty() {
        bail!("{}: no round is kept whose work could be done again; see snapshots.keep", data_dir.display());
    }
    for finding in &findings {
        let Finding { round, worker, block, outcome, tolerance } = finding;
        let words = match outcome {
            Ok(distance) if distance <= tolerance => format!("as sent, off by {distance:.2e} of its length"),
            Ok(distance) => {
                format!("NOT as sent: off by {distance:.2e} of its length, {tolerance} is allowed")
            }
            Err(error) => format!("cannot be done again: {error}"),
        };
        println!("round {round}, block {block}, {worker}: {words}");
    }
    let off = findings.iter().filter(|finding| finding.is_off()).count();
    ensure!(off == 0, "{off} of {} pieces of work are not what was asked for", findings.len());
    Ok(())
}

/// One piece of work, looked at again.
#[derive(Debug)]
struct Finding {
    pub round: u64,
    pub worker: WorkerId,
    pub block: u32,
    /// Distance over length; or why it could not be done again.
    pub outcome: Result<f64, RecheckError>,
    pub tolerance: f64,
}

impl Finding {
    /// Whether it lies further off than rounding explains.
    pub(crate) fn is_off(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|distance| *distance > self.tolerance)
    }
}

/// All work whose weights the data directory still has.
///
/// # Errors
///
/// A folder that holds no run of block mode, or files in it that cannot be read.
fn recheck(folder: &Path) -> anyhow::Result<Vec<Finding>> {
    let (config, data_dir) = DataDir::look_into(folder)?;
    let dataset = Dataset::of_folder(&config.data, &data_dir)?;
    let run = config.run_spec(dataset.tokenizer.vocabulary());
    ensure!(run.blocks.is_some(), "{} holds a run of pipeline mode, which has no rounds", folder.display());
    let training = &config.training;
    let mut train = dataset.train_windows(training.seed, training.window_shape(), 1)?;
    let read = |blob: BlobRef| {
        let path = data_dir.blobs().join(blob.hash.to_string());
        std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let manifests = rounds::list(&data_dir.snapshots())?;
    let rate = learning_rate(training);
    let local = config.rounds.local_steps;
    // The weights that each round started from, and what came of it.
    let kept: BTreeMap<u64, (&RoundManifest, &RoundManifest)> = manifests
        .windows(2)
        .filter_map(|pair| match pair {
            [before, after] if after.published.round == before.published.round + 1 => {
                Some((before.published.round, (before, after)))
            }
            _ => None,
        })
        .collect();
    let mut step = |round: u64, work: &Work| -> anyhow::Result<Option<Step>> {
        let Some((before, _)) = kept.get(&round) else { return Ok(None) };
        let range = local_steps::of_round(round, local, training.steps);
        let steps = (range.end - range.start) as u32;
        let slots = config.session.max_workers;
        Ok(Some(Step {
            seed: seeds::noise(training.seed, round, work.slot),
            files: [read(before.published.blocks[work.block as usize])?, read(before.published.table)?],
            windows: block_windows::of_round(&mut train, round, work.slot, steps, local, slots),
            learning_rates: range.map(|step| rate.at(step)).collect(),
        }))
    };
    let mut findings = Vec::new();
    for (&round, (before, after)) in &kept {
        for work in &after.work {
            let mut chain = Ok(Vec::new());
            let first = work.moments_since.ok_or(RecheckError::Unknown);
            for earlier in first.clone().map_or(0..0, |since| since..round + 1) {
                // The same worker's share of that round.
                let share = kept.get(&earlier).and_then(|(_, after)| {
                    after.work.iter().find(|w| w.worker == work.worker && w.block == work.block)
                });
                let step = match share {
                    Some(share) => step(earlier, share)?,
                    None => None,
                };
                match (step, &mut chain) {
                    (Some(step), Ok(chain)) => chain.push(step),
                    (None, _) => {
                        let since = work.moments_since.unwrap_or_default();
                        chain = Err(RecheckError::Forgotten { since });
                        break;
                    }
                    _ => {}
                }
            }
            let sent = read(work.delta)?;
            let outcome = first.and(chain).and_then(|chain| {
                let redone = block_on(redo(&run, work.block, chain))?;
                distance(&run, work.block, &before.published, &sent, &redone)
            });
            let tolerance = tolerance(config.rounds.encoding());
            findings.push(Finding { round, worker: work.worker, block: work.block, outcome, tolerance });
        }
    }
    Ok(findings)
}
