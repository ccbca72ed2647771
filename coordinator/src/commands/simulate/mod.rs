//! `cohort simulate`: a run of block mode with virtual workers, under one regime or all, as a table.

mod virtual_run;

use std::{io::Write, path::PathBuf};

use anyhow::Context;
use protocol::evaluation::Scores;
use simulation::{Outcome, Plan, REGIMES, Regime, parallel::map};

use super::{progress::Progress, serve};
use crate::config::RunConfig;

pub use virtual_run::{adaptive, dataset, default_run, parse, predict, run};

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run; without one, a small default run on the built-in dictionary.
    run: Option<PathBuf>,
    /// lockstep, mild, wan-tight, wan-mid, wan-loose, edge-mid, bad-edge, bad-edge-loose, or all.
    #[arg(long, default_value = "all")]
    regime: String,
    /// Virtual workers [default: two for each block].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: Option<u32>,
    /// Rounds, in place of what training.steps comes to.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Seed of the run and of all chance, in place of training.seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Let the coordinator learn its deadlines from arrivals, in place of the regime's fixed one.
    #[arg(long)]
    adaptive: bool,
    /// Write JSON in place of the table.
    #[arg(long)]
    json: bool,
}

/// Simulates, and writes a table or JSON to stdout.
pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let regimes: Vec<Regime> = match arguments.regime.as_str() {
        "all" => REGIMES.to_vec(),
        name => vec![Regime::named(name).with_context(|| {
            let names: Vec<&str> = REGIMES.iter().map(|regime| regime.name).collect();
            format!("--regime: there is no regime \"{name}\"; give all or one of {}", names.join(", "))
        })?],
    };
    let mut config = match &arguments.run {
        Some(path) => serve::load(Some(path))?,
        None => default_run()?,
    };
    shorten(&mut config, arguments.rounds);
    let workers = arguments.workers.unwrap_or((2 * config.blocks.count).max(1));
    let folder = tempfile::tempdir()?;
    let dataset = dataset(&config, folder.path())?;
    let rounds = config.training.steps.div_ceil(u64::from(config.rounds.local_steps));
    let progress = Progress::new("simulating", rounds * regimes.len() as u64);
    let seed = arguments.seed.unwrap_or(config.training.seed);
    let deadline = arguments.adaptive.then(|| adaptive(&config));
    let outcomes = map(regimes.clone(), |regime| {
        let plan = Plan { deadline, ..Plan::new(regime, workers, seed) };
        run(&config, &dataset, &plan, |_| progress.step())
    });
    drop(progress);
    let outcomes = outcomes.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let all: Vec<_> =
            regimes.iter().zip(&outcomes).map(|(regime, outcome)| json(regime, outcome)).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        write!(out, "{}", table(&regimes, &outcomes))?;
    }
    Ok(())
}

/// So many rounds in place of the run's own, with the schedule stretched.
fn shorten(config: &mut RunConfig, rounds: Option<u64>) {
    let Some(rounds) = rounds else { return };
    let training = &mut config.training;
    let steps = rounds * u64::from(config.rounds.local_steps);
    training.warmup_steps = (training.warmup_steps * steps / training.steps.max(1)).min(steps);
    training.steps = steps;
    if training.validate_every > 0 {
        training.validate_every = training.validate_every.min(steps);
    }
}

fn json(regime: &Regime, outcome: &Outcome) -> serde_json::Value {
    serde_json::json!({
        "regime": regime.name,
        "participation": outcome.participation,
        "scores": outcome.scores,
        "seconds": outcome.seconds,
        "round_seconds": outcome.round_seconds,
        "bytes_down": outcome.bytes_down,
        "bytes_up": outcome.bytes_up,
        "local_steps": outcome.local_steps,
        "refusals": outcome.refusals,
        "state": outcome.state,
    })
}

fn table(regimes: &[Regime], outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<15} {:>13} {:>8} {:>8} {:>10} {:>9} {:>8} {:>9} {:>9}\n",
        "regime",
        "participation",
        "one draw",
        "K draws",
        "best block",
        "wall, s",
        "round, s",
        "down, kB",
        "up, kB"
    );
    for (regime, outcome) in regimes.iter().zip(outcomes) {
        let score = |get: fn(&Scores) -> f64| {
            outcome.scores.as_ref().map_or("-".to_owned(), |scores| format!("{:.3}", get(scores)))
        };
        text += &format!(
            "{:<15} {:>13.3} {:>8} {:>8} {:>10} {:>9.1} {:>8.2} {:>9.1} {:>9.1}\n",
            regime.name,
            outcome.participation,
            score(|s| s.one_draw),
            score(|s| s.many_draws),
            score(|s| s.alone.iter().copied().fold(f64::INFINITY, f64::min)),
            outcome.seconds,
            outcome.round_seconds,
            outcome.bytes_down / 1e3,
            outcome.bytes_up / 1e3,
        );
    }
    text +=
        "Cross-entropies are nats per token on held-out text, from noise; bytes are per accepted delta.\n";
    text
}
