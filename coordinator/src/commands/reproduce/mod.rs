//! `cohort reproduce`: the questions of the paper's tables, asked at small scale of the simulator.
//!
//! Each experiment writes a page with its command, setting, table, expectation and finding, and a plot.

mod depth;
mod hostile;
mod page;
mod plot;
mod regimes;
mod shared;
mod sigma;
mod statistics;
mod transport;

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;

use page::Page;
use simulation::{Outcome, Plan, parallel::map};

use super::{progress::Progress, reference, serve::settings::learning_rate, simulate};
use crate::{config::RunConfig, data::Dataset};

/// One of the experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// Ranges of noise.
    Sigma,
    /// How many blocks for as many layers.
    Depth,
    /// Regimes of workers and links.
    Async,
    /// Two workers at a block against one.
    Shared,
    /// Encodings of deltas.
    Transport,
    /// Hostile workers against aggregators.
    Hostile,
}

/// How it is run.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Seeds, over which means and errors are taken.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Folder of the page and the plot.
    #[arg(long, default_value = "docs/reproduction")]
    pub out: PathBuf,
    /// Only show that everything works, in seconds.
    #[arg(long)]
    pub quick: bool,
}

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    experiment: Experiment,
    #[command(flatten)]
    options: Options,
}

pub(super) fn command(Arguments { experiment, options }: Arguments) -> anyhow::Result<()> {
    println!("{}", reproduce(experiment, &options)?.display());
    Ok(())
}

/// Runs an experiment and writes `<out>/<name>.md` and `.svg`; gives the page's path.
///
/// # Errors
///
/// Files that cannot be written, or a run that cannot go on, in words.
pub fn reproduce(experiment: Experiment, options: &Options) -> anyhow::Result<PathBuf> {
    let name = experiment.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("--out: cannot make the folder {}", options.out.display()))?;
    let folder = tempfile::tempdir()?;
    let dataset = simulate::dataset(&simulate::default_run()?, folder.path())?;
    let lab = Lab { name: name.clone(), dataset, seeds: options.seeds.max(1), quick: options.quick };
    let began = std::time::Instant::now();
    let mut page = match experiment {
        Experiment::Sigma => sigma::run(&lab),
        Experiment::Depth => depth::run(&lab),
        Experiment::Async => regimes::run(&lab),
        Experiment::Shared => shared::run(&lab),
        Experiment::Transport => transport::run(&lab),
        Experiment::Hostile => hostile::run(&lab),
    }?;
    let quick = if options.quick { " --quick" } else { "" };
    page.command = format!("cohort reproduce {name} --seeds {}{quick}", lab.seeds);
    page.minutes = began.elapsed().as_secs_f64() / 60.0;
    let place = options.out.join(format!("{name}.md"));
    std::fs::write(&place, page.text(&name)).with_context(|| format!("cannot write {}", place.display()))?;
    std::fs::write(options.out.join(format!("{name}.svg")), page.plot.svg())?;
    Ok(place)
}

/// What the experiments share.
struct Lab {
    name: String,
    dataset: Dataset,
    seeds: u64,
    quick: bool,
}

/// A block run of an experiment.
struct Case {
    config: RunConfig,
    plan: Plan,
}

/// An autoregressive reference.
struct Reference {
    config: RunConfig,
    layers: u32,
    steps: u64,
}

impl Lab {
    /// A run of `layers` layers in `blocks` blocks over `steps` local steps; `more` is TOML of its own.
    fn config(&self, blocks: u32, layers: u32, steps: u64, more: &str) -> anyhow::Result<RunConfig> {
        let (steps, batches) = if self.quick { (20, 1) } else { (steps, 8) };
        simulate::parse(&format!(
            "name = \"reproduced\"\nmode = \"block\"\n\
             [model]\nlayers = {layers}\nwidth = 32\nheads = 2\ncontext = 32\n\
             [training]\nsteps = {steps}\nsequences = 8\nlearning_rate = 5e-3\nvalidate_every = {steps}\n\
             validation_batches = {batches}\n[blocks]\ncount = {blocks}\n{more}"
        ))
    }

    /// Every case with every seed; the outcomes of a case lie together. A run that breaks down is an error of its own.
    fn try_runs(&self, cases: &[Case]) -> Vec<Vec<anyhow::Result<Outcome>>> {
        let work: Vec<(&Case, u64)> =
            cases.iter().flat_map(|case| (1..=self.seeds).map(move |seed| (case, seed))).collect();
        let progress = Progress::new(&self.name, work.len() as u64);
        let mut all = map(work, |(case, seed)| {
            let plan = Plan { seed, ..case.plan.clone() };
            let outcome = simulate::run(&case.config, &self.dataset, &plan, |_| {});
            progress.step();
            outcome
        })
        .into_iter();
        cases.iter().map(|_| all.by_ref().take(self.seeds as usize).collect()).collect()
    }

    /// The same, where none may break down.
    fn runs(&self, cases: &[Case]) -> anyhow::Result<Vec<Vec<Outcome>>> {
        self.try_runs(cases).into_iter().map(|seeds| seeds.into_iter().collect()).collect()
    }

    /// Cross-entropy of every reference with every seed.
    fn references(&self, references: &[Reference]) -> anyhow::Result<Vec<Vec<f64>>> {
        let work: Vec<(&Reference, u64)> =
            references.iter().flat_map(|one| (1..=self.seeds).map(move |seed| (one, seed))).collect();
        let progress = Progress::new("references", work.len() as u64);
        let mut all = map(work, |(Reference { config, layers, steps }, seed)| {
            let run = config.run_spec(self.dataset.tokenizer.vocabulary());
            let training = &config.training;
            let rate = learning_rate(training);
            let shape = training.window_shape();
            let mut train = self.dataset.train_windows(seed, shape, 1)?;
            let validation = self.dataset.validation_windows(shape)?;
            let batches = training.validation_batches;
            let told = |_| {};
            let loss =
                reference::train(&run, *layers, *steps, &rate, &mut train, &validation, batches, seed, told);
            progress.step();
            loss
        })
        .into_iter();
        references.iter().map(|_| all.by_ref().take(self.seeds as usize).collect()).collect()
    }
}

/// The name of the score with several draws.
fn many_draws(cases: &[Case]) -> String {
    cases.first().map_or_else(String::new, |case| format!("{} draws", case.config.rounds.draws))
}

/// What a page begins its setting with.
fn setting(lab: &Lab, config: &RunConfig, more: &str) -> String {
    let training = &config.training;
    format!(
        "Webster's dictionary in bytes, width {}, {} heads, T {}, N {}, {} local steps a block in rounds of {}, peak rate \
         {}, {} seeds (mean ± standard error). {more}",
        config.model.width,
        config.model.heads,
        training.context,
        training.sequences,
        training.steps,
        config.rounds.local_steps,
        training.learning_rate,
        lab.seeds
    )
}
