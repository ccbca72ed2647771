//! Measurements of published weights that are under way, batch by batch.

use std::collections::BTreeMap;

use engine::{
    block::{BlockError, evaluate::evaluate, sweep::Composed},
    device::Device,
};
use protocol::{evaluation::Scores, spec::RunSpec};
use serde::Serialize;

use super::{Published, seeds, windows};
use crate::{data::windows::ValidationWindows, run::event::WorkerId};

/// Who computes evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evaluator {
    /// The coordinator, on its processor.
    Coordinator,
    /// Workers that have nothing else to do; the coordinator what they leave over.
    Workers,
}

/// The weights of one round being measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    pub published: Published,
    scores: Vec<Option<Scores>>,
    dealt: BTreeMap<u32, WorkerId>,
    /// The coordinator has taken over what is missing.
    pub at_home: bool,
}

impl Evaluation {
    pub fn new(published: Published, batches: u32) -> Self {
        let scores = vec![None; batches as usize];
        Self { published, scores, dealt: BTreeMap::new(), at_home: false }
    }

    /// Deals a batch that nobody has to this worker.
    pub fn deal(&mut self, worker: WorkerId) -> Option<u32> {
        if self.at_home || self.dealt.values().any(|busy| *busy == worker) {
            return None;
        }
        let free = |batch: &u32| self.scores[*batch as usize].is_none() && !self.dealt.contains_key(batch);
        let batch = (0..self.scores.len() as u32).find(free)?;
        self.dealt.insert(batch, worker);
        Some(batch)
    }

    /// Whether this worker has this batch.
    pub fn has(&self, worker: WorkerId, batch: u32) -> bool {
        self.dealt.get(&batch) == Some(&worker)
    }

    /// The worker is gone, or failed: its batch is free again.
    pub fn take_back(&mut self, worker: WorkerId) {
        self.dealt.retain(|_, busy| *busy != worker);
    }

    /// Batches without scores.
    pub fn missing(&self) -> Vec<u32> {
        (0..self.scores.len() as u32).filter(|batch| self.scores[*batch as usize].is_none()).collect()
    }

    pub fn take(&mut self, batch: u32, scores: Scores) {
        self.dealt.remove(&batch);
        if let Some(slot) = self.scores.get_mut(batch as usize)
            && slot.is_none()
        {
            *slot = Some(scores);
        }
    }

    /// The mean over all batches, once they are in.
    pub fn done(&self) -> Option<Scores> {
        Scores::mean(&self.scores.iter().cloned().collect::<Option<Vec<_>>>()?)
    }
}

/// The scores of one held-out batch, computed here; `files` together hold all blocks and the table, `run_seed` is the run's.
///
/// # Errors
///
/// [`BlockError`] for files that are damaged or of another run, and for scores that are not finite.
pub fn measure<B: AsRef<[u8]>>(
    run: &RunSpec,
    files: &[B],
    validation: &ValidationWindows,
    batch: u32,
    run_seed: u64,
    draws: u32,
) -> Result<Scores, BlockError> {
    let windows = windows::whole(&validation.batch(u64::from(batch)), validation.shape());
    let shape = [run.sequences as usize, run.context as usize];
    let seed = seeds::evaluation(run_seed, batch);
    futures::executor::block_on(async {
        let model = Composed::import(run, files, &Device::Host).await?;
        evaluate(&model, &windows, shape, seed, draws, async || {}).await
    })
}
