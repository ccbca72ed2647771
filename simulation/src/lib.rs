//! Virtual workers under a virtual clock, around the very machine, keeper and engine of a real run.
//!
//! What a worker computes and sends is real, down to the bytes of every frame and file; only how long it takes is made
//! up: by a [`Regime`], or by [`Speed`]s that somebody has measured. Checking and averaging take no time. A seed gives
//! the same run bit for bit, on any number of threads.

pub mod behaviour;
pub mod chance;
pub mod parallel;
pub mod predict;
pub mod progress;
pub mod regime;
pub mod report;
mod worker;
mod world;

use std::collections::BTreeMap;

use anyhow::Context;
use protocol::{evaluation::Scores, view::CurvePoint};

pub use behaviour::Behaviour;
pub use predict::{Prediction, predict};
pub use regime::{REGIMES, Regime, Speed};

use crate::{
    config::{ModeName, RunConfig},
    data::Dataset,
    rounds::deadline::DeadlinePolicy,
    run::event::Record,
};

/// Who takes part, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub regime: Regime,
    pub workers: u32,
    /// Of the run (weights, data, noise) and of everything the regime draws.
    pub seed: u64,
    /// Let the coordinator learn its deadlines from arrivals, in place of the regime's fixed one.
    pub adaptive: bool,
    /// How the first workers behave; the others are honest.
    pub hostile: Vec<Behaviour>,
    /// Whether the keeper turns away copies, zeros, and deltas of an absurd size or length.
    pub checks: bool,
}

impl Plan {
    pub fn new(regime: Regime, workers: u32, seed: u64) -> Plan {
        Plan { regime, workers, seed, adaptive: false, hostile: vec![], checks: true }
    }
}

/// What a simulated run came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Mean over the rounds of accepted deltas over assigned replicas.
    pub participation: f64,
    /// Virtual seconds of the whole run, and of a round on average.
    pub seconds: f64,
    pub round_seconds: f64,
    /// Bytes down and up per accepted delta, without what joining costs.
    pub bytes_down: f64,
    pub bytes_up: f64,
    /// Local steps of all accepted deltas.
    pub local_steps: u64,
    /// Of the last weights.
    pub scores: Option<Scores>,
    pub curve: Vec<CurvePoint>,
    /// Deltas and workers turned away, by the name of the reason.
    pub refusals: BTreeMap<String, u64>,
    /// Hash of the last weights.
    pub state: String,
    /// Everything that the event log of a real run would hold.
    pub records: Vec<Record>,
}

/// Runs `plan` with the settings of `config`, whose seed and deadline give way to the plan's. `told` hears the rounds
/// done.
///
/// # Errors
///
/// A run that is not in block mode, or in which nothing can happen any more, in words.
pub fn run(
    config: &RunConfig,
    dataset: &Dataset,
    plan: &Plan,
    told: impl FnMut(u64),
) -> anyhow::Result<Outcome> {
    let speeds = plan.regime.speeds(plan.workers, plan.seed);
    let mut config = config.clone();
    config.training.seed = plan.seed;
    world::World::new(&config, dataset, plan, &speeds, None, true)?.run(told)
}

/// The run of `cohort simulate` without a file: small enough that all regimes take about a minute on two cores.
///
/// # Errors
///
/// None that a user could mend.
pub fn default_run() -> anyhow::Result<RunConfig> {
    parse(
        "name = \"simulated\"\nmode = \"block\"\n\
         [model]\nlayers = 3\nwidth = 32\nheads = 2\ncontext = 32\n\
         [training]\nsteps = 200\nsequences = 8\nlearning_rate = 5e-3\nvalidate_every = 200\nvalidation_batches = 8\n\
         [rounds]\nlocal_steps = 10\n",
    )
}

/// A run from text, its faults as one error.
pub(crate) fn parse(toml: &str) -> anyhow::Result<RunConfig> {
    RunConfig::parse(toml, "run.toml").map_err(|faults| {
        anyhow::anyhow!(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

/// The tokens of a run; what was tokenised before lies in `folder`.
///
/// # Errors
///
/// As for [`Dataset::prepare`].
pub fn dataset(config: &RunConfig, folder: &std::path::Path) -> anyhow::Result<Dataset> {
    let data = &config.data;
    let files = data.tokenizer_files.as_deref();
    Dataset::prepare(&data.source, data.tokenizer, files, data.validation_fraction, folder)
        .context("the text of the simulated run cannot be had")
}

/// The policy of a plan: the regime's factor times the typical arrival, or what the run says.
fn deadline(config: &RunConfig, plan: &Plan, typical: f64) -> DeadlinePolicy {
    if plan.adaptive {
        return DeadlinePolicy::Adaptive {
            target: config.rounds.target_participation,
            floor: config.rounds.least_participation,
            longest: config.rounds.longest_seconds,
        };
    }
    DeadlinePolicy::Fixed { seconds: plan.regime.deadline * typical }
}

fn check(config: &RunConfig) -> anyhow::Result<()> {
    anyhow::ensure!(
        config.mode == ModeName::Block,
        "mode is \"pipeline\", and only block mode has rounds to simulate; set mode = \"block\""
    );
    Ok(())
}
