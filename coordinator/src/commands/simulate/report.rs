//! `cohort simulate`: one regime or all, as a table.

use std::{io::Write, path::Path};

use anyhow::Context;

use super::{Outcome, Plan, REGIMES, Regime, parallel::map, progress::Progress};
use crate::{config::RunConfig, serve};

/// What the command line says.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Without a file, the small default run.
    pub run: Option<&'a Path>,
    /// A name, or `all`.
    pub regime: &'a str,
    pub workers: Option<u32>,
    pub rounds: Option<u64>,
    pub seed: Option<u64>,
    pub adaptive: bool,
    pub json: bool,
}

/// Simulates, and writes a table or JSON to `out`.
///
/// # Errors
///
/// Faults of the run's file, an unknown regime, or a run that cannot go on, in words.
pub fn simulate(options: &Options<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let regimes: Vec<Regime> = match options.regime {
        "all" => REGIMES.to_vec(),
        name => vec![Regime::named(name).with_context(|| {
            let names: Vec<&str> = REGIMES.iter().map(|regime| regime.name).collect();
            format!("--regime: there is no regime \"{name}\"; give all or one of {}", names.join(", "))
        })?],
    };
    let mut config = match options.run {
        Some(path) => serve::load(Some(path))?,
        None => super::default_run()?,
    };
    shorten(&mut config, options.rounds);
    super::check(&config)?;
    let workers = options.workers.unwrap_or((2 * config.blocks.count).max(1));
    let folder = tempfile::tempdir()?;
    let dataset = super::dataset(&config, folder.path())?;
    let rounds = config.training.steps.div_ceil(u64::from(config.rounds.local_steps));
    let progress = Progress::new("simulating", rounds * regimes.len() as u64);
    let seed = options.seed.unwrap_or(config.training.seed);
    let outcomes = map(regimes.clone(), |regime| {
        let plan = Plan { adaptive: options.adaptive, ..Plan::new(regime, workers, seed) };
        super::run(&config, &dataset, &plan, |_| progress.step())
    });
    drop(progress);
    let outcomes = outcomes.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    if options.json {
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
        let score = |get: fn(&protocol::evaluation::Scores) -> f64| {
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
