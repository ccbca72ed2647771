//! What a regime does to each worker in each round it is given.

use crate::{
    harness::{Desk, Runtime},
    regime::{Away, Regime, Speed},
};

/// The luck of all workers of a run.
#[derive(Debug, Clone)]
pub(crate) struct Luck {
    regime: Regime,
    seed: u64,
    /// What each worker can do, and the rounds it has been given.
    workers: Vec<(Speed, u64)>,
    /// Bytes of a round's frames and files, down and up.
    bytes: [u64; 2],
}

impl Luck {
    pub(crate) fn new(regime: Regime, seed: u64, speeds: &[Speed], bytes: [u64; 2]) -> Self {
        Self { regime, seed, workers: speeds.iter().map(|speed| (*speed, 0)).collect(), bytes }
    }

    /// A worker is given a round of so many local steps. False if it is away and does not hear of it.
    pub(crate) fn begins<R: Runtime>(&mut self, endpoint: usize, steps: u32, desk: &mut Desk<'_, R>) -> bool {
        let Some((speed, turn)) = self.workers.get_mut(endpoint) else { return true };
        *turn += 1;
        let fortune = self.regime.fortune(self.seed, endpoint as u64, *turn);
        desk.slow_down(endpoint, fortune.compute, fortune.link);
        match fortune.away {
            None => true,
            Some(Away::Silent) => false,
            Some(Away::Gone { after }) => {
                let length = speed.round_seconds(self.bytes, steps, fortune.compute, fortune.link);
                desk.leave_later(endpoint, after * length, length);
                true
            }
        }
    }
}
