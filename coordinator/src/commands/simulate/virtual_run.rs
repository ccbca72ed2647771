//! A run in virtual time from its run.toml and its data.

use std::path::Path;

use anyhow::Context;
use control::{block::deadline::DeadlinePolicy, pipeline::Half};
use protocol::message::{Address, Pass};
use simulation::{BlockSetup, Outcome, Plan, Prediction, SimulationError, Speed, Windows};

use crate::{
    commands::serve::settings::{round_settings, settings},
    config::{ModeName, RunConfig},
    data::{
        Dataset, block_windows,
        windows::{TrainWindows, ValidationWindows},
    },
};

/// Token windows of a dataset, cut as a real run cuts them.
struct DataWindows {
    train: TrainWindows,
    validation: ValidationWindows,
    local_steps: u32,
    /// Replicas that have windows of their own.
    slots: u32,
}

impl DataWindows {
    fn new(config: &RunConfig, dataset: &Dataset, seed: u64) -> anyhow::Result<Self> {
        let shape = config.training.window_shape();
        Ok(Self {
            train: dataset.train_windows(seed, shape, 1)?,
            validation: dataset.validation_windows(shape)?,
            local_steps: config.rounds.local_steps,
            slots: config.session.max_workers,
        })
    }
}

impl Windows for DataWindows {
    fn pass(&mut self, to: &Address, half: Half, micro_batches: u32) -> Vec<u32> {
        self.train.set_micro_batches(micro_batches);
        let batch = match to.pass {
            Pass::Train { micro_batch } => self.train.batch(to.step, micro_batch),
            Pass::Validate { batch } => self.validation.batch(u64::from(batch)),
        };
        match half {
            Half::Inputs => batch.inputs,
            Half::Targets => batch.targets,
        }
    }

    fn round(&mut self, round: u64, slot: u32, steps: u32) -> Vec<u32> {
        block_windows::of_round(&mut self.train, round, slot, steps, self.local_steps, self.slots)
    }

    fn evaluation(&mut self, batch: u32) -> Vec<u32> {
        block_windows::whole(&self.validation.batch(u64::from(batch)), self.validation.shape())
    }
}

/// What a simulated run of block mode is made of.
///
/// # Errors
/// A run that is not in block mode, or text too short for it.
fn block_setup(config: &RunConfig, dataset: &Dataset) -> anyhow::Result<BlockSetup> {
    anyhow::ensure!(config.mode == ModeName::Block, SimulationError::NotBlockMode);
    let batches = dataset.validation_windows(config.training.window_shape())?.batches();
    let settings = settings(config, dataset, batches);
    let rounds = round_settings(config, &settings.run)?;
    let rules = config.rounds.rules(config.training.learning_rate);
    Ok(BlockSetup { settings, rounds, rules })
}

/// Deadlines learned from arrivals, as the run says, in place of a regime's fixed one.
pub fn adaptive(config: &RunConfig) -> DeadlinePolicy {
    DeadlinePolicy::Adaptive {
        target: config.rounds.target_participation,
        floor: config.rounds.least_participation,
        longest: config.rounds.longest_seconds,
    }
}

/// Runs `plan` with the settings of `config`, whose seed and deadline give way to the plan's. `told` hears the rounds
/// done.
///
/// # Errors
/// A run that is not in block mode, or that cannot go on, in words.
pub fn run(
    config: &RunConfig,
    dataset: &Dataset,
    plan: &Plan,
    told: impl FnMut(u64),
) -> anyhow::Result<Outcome> {
    let setup = block_setup(config, dataset)?;
    let slots = config.session.max_workers.max(plan.workers);
    let windows = DataWindows { slots, ..DataWindows::new(config, dataset, plan.seed)? };
    Ok(simulation::run(&setup, windows, plan, told)?)
}

/// What the rounds of `config`, under its own deadline, come to on workers of these speeds.
///
/// # Errors
/// A run that is not in block mode, or no workers, in words.
pub fn predict(config: &RunConfig, dataset: &Dataset, workers: &[Speed]) -> anyhow::Result<Prediction> {
    Ok(simulation::predict(&block_setup(config, dataset)?, workers)?)
}

/// The run of `cohort simulate` without a file: small enough that all regimes take about a minute on two cores.
///
/// # Errors
/// None that a user could mend.
pub fn default_run() -> anyhow::Result<RunConfig> {
    parse(
        "name = \"simulated\"\nmode = \"block\"\n\
         [model]\nlayers = 3\nwidth = 32\nheads = 2\ncontext = 32\n\
         [training]\nsteps = 200\nsequences = 8\nlearning_rate = 5e-3\nvalidate_every = 200\nvalidation_batches = 8\n\
         [rounds]\nlocal_steps = 10\n",
    )
}

/// A run from text.
///
/// # Errors
/// All its faults, one a line.
pub fn parse(toml: &str) -> anyhow::Result<RunConfig> {
    RunConfig::parse(toml, "run.toml").map_err(|faults| {
        anyhow::anyhow!(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

/// The tokens of a run; what was tokenised before lies in `folder`.
///
/// # Errors
/// As for [`Dataset::prepare`].
pub fn dataset(config: &RunConfig, folder: &Path) -> anyhow::Result<Dataset> {
    let data = &config.data;
    Dataset::prepare(&data.source, data.tokenizer_choice(), data.validation_fraction, folder, None)
        .context("the text of the simulated run cannot be had")
}
