//! What a run of known workers will come to, without training anything.

use super::{Plan, Regime, Speed, world::World};
use crate::{config::RunConfig, data::Dataset};

/// What to expect of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Mean over the rounds of accepted deltas over assigned replicas.
    pub participation: f64,
    /// Mean seconds of a round, in which checking, averaging and measuring take none.
    pub round_seconds: f64,
    /// Bytes down and up per accepted delta, without what joining costs.
    pub bytes_down: f64,
    pub bytes_up: f64,
}

/// Plays the rounds of `config`, under its own deadline, on workers of exactly these speeds. They send deltas of the
/// right size without having trained.
///
/// # Errors
///
/// A run that is not in block mode, or no workers, in words.
pub fn predict(config: &RunConfig, dataset: &Dataset, workers: &[Speed]) -> anyhow::Result<Prediction> {
    let speed =
        workers.first().copied().unwrap_or(Speed { step_seconds: 1.0, latency: 0.0, down: 1.0, up: 1.0 });
    let plan = Plan::new(Regime::constant(speed, 1.0), workers.len() as u32, config.training.seed);
    let deadline = config.rounds.deadline_policy();
    let outcome = World::new(config, dataset, &plan, workers, Some(deadline), false)?.run(|_| {})?;
    Ok(Prediction {
        participation: outcome.participation,
        round_seconds: outcome.round_seconds,
        bytes_down: outcome.bytes_down,
        bytes_up: outcome.bytes_up,
    })
}
