//! A measurement of published weights in progress, batch by batch.

use std::collections::BTreeMap;

use protocol::{evaluation::Scores, published::Published, worker_id::WorkerId};
use serde::Serialize;

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
    /// The weights.
    pub published: Published,
    /// One a batch.
    scores: Vec<Option<Scores>>,
    /// Batches at a worker.
    dealt: BTreeMap<u32, WorkerId>,
    /// The coordinator has taken over what is missing.
    pub by_coordinator: bool,
}

impl Evaluation {
    /// Nothing measured yet, of so many batches.
    pub fn new(published: Published, batches: u32) -> Self {
        let scores = vec![None; batches as usize];
        Self { published, scores, dealt: BTreeMap::new(), by_coordinator: false }
    }

    /// Deals a batch that nobody has to this worker.
    pub fn deal(&mut self, worker: WorkerId) -> Option<u32> {
        if self.by_coordinator || self.dealt.values().any(|busy| *busy == worker) {
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

    /// The worker is gone, or failed: its batch is free again. Returns whether it had one.
    pub fn take_back(&mut self, worker: WorkerId) -> bool {
        let before = self.dealt.len();
        self.dealt.retain(|_, busy| *busy != worker);
        self.dealt.len() < before
    }

    /// Batches without scores.
    pub fn missing(&self) -> Vec<u32> {
        (0..self.scores.len() as u32).filter(|batch| self.scores[*batch as usize].is_none()).collect()
    }

    /// Notes the scores of a batch, the first ones that come.
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
