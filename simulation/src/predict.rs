//! What a run of known workers will come to, without training anything worth mention.

use control::pipeline::Half;
use protocol::message::Address;

use crate::{
    block::BlockSetup,
    error::SimulationError,
    regime::{Regime, Speed},
    simulate::{Plan, dry, play},
    windows::Windows,
};

/// What to expect of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Mean over the rounds of accepted deltas over assigned replicas.
    pub participation: f64,
    /// Mean seconds of a round, in which checking, averaging and measuring take none.
    pub round_seconds: f64,
    /// Bytes down per accepted delta, without what joining costs.
    pub bytes_down: f64,
    /// Bytes up per accepted delta, without what joining costs.
    pub bytes_up: f64,
}

/// Plays the rounds of `setup`, under its own deadline, on workers of exactly these speeds. The sessions are real; a
/// tiny model stands in for the run's own, with the bytes of the run's own frames and files.
///
/// # Errors
/// [`SimulationError`]: a run that is not in block mode, or no workers.
pub fn predict(setup: &BlockSetup, workers: &[Speed]) -> Result<Prediction, SimulationError> {
    let Some(speed) = workers.first() else { return Err(SimulationError::NoWorkers) };
    let regime = Regime::constant(*speed, 1.0);
    let deadline = Some(setup.rounds.deadline);
    let seed = setup.settings.seed;
    let plan = Plan { deadline, ..Plan::new(regime, workers.len() as u32, seed) };
    let (setup, stand_in) = dry(setup)?;
    let outcome = play(setup, NoData, &plan, workers, Some(stand_in), |_| {})?;
    Ok(Prediction {
        participation: outcome.participation,
        round_seconds: outcome.round_seconds,
        bytes_down: outcome.bytes_down,
        bytes_up: outcome.bytes_up,
    })
}

/// The runtime makes windows of the tiny model itself.
struct NoData;

impl Windows for NoData {
    fn pass(&mut self, _: &Address, _: Half, _: u32) -> Vec<u32> {
        vec![]
    }

    fn round(&mut self, _: u64, _: u32, _: u32) -> Vec<u32> {
        vec![]
    }

    fn evaluation(&mut self, _: u32) -> Vec<u32> {
        vec![]
    }
}
