//! A worker's part in a round: H local steps from the published weights, and what they changed.

use super::{BlockError, Replica, StepScore};
use crate::gpt2::StageError;

/// What is to be done, all of it from numbers that anybody can have again.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Key of the noise.
    pub seed: u64,
    /// Of each of the H local steps.
    pub learning_rates: Vec<f64>,
    /// Token ids [H, N, T + 1]: T tokens to read, each followed by its target.
    pub windows: Vec<u32>,
    /// [N, T]
    pub shape: [usize; 2],
}

/// A round in progress on one replica, which must not be trained otherwise meanwhile.
pub struct LocalRound {
    task: Task,
    /// The weights it began with.
    base: Vec<Vec<f32>>,
    done: usize,
    scores: Vec<StepScore>,
}

impl LocalRound {
    /// Begin from the weights that the replica has.
    ///
    /// # Errors
    ///
    /// [`StageError::Length`] where there are not H * N * (T + 1) tokens.
    pub async fn begin(task: Task, replica: &Replica) -> Result<LocalRound, BlockError> {
        let [sequences, tokens] = task.shape;
        let expected = task.learning_rates.len() * sequences * (tokens + 1);
        if task.windows.len() != expected {
            let found = task.windows.len();
            return Err(StageError::Length { what: "a round's windows", found, expected }.into());
        }
        Ok(LocalRound { task, base: replica.values().await?, done: 0, scores: Vec::new() })
    }

    /// H.
    pub fn steps(&self) -> usize {
        self.task.learning_rates.len()
    }

    /// Local steps done so far.
    pub fn steps_done(&self) -> usize {
        self.done
    }

    /// The next local step; None once all are done.
    ///
    /// # Errors
    ///
    /// As for [`Replica::step`].
    pub async fn step(&mut self, replica: &mut Replica) -> Result<Option<StepScore>, BlockError> {
        let Some(&learning_rate) = self.task.learning_rates.get(self.done) else { return Ok(None) };
        let [sequences, tokens] = self.task.shape;
        let size = sequences * (tokens + 1);
        let windows = &self.task.windows[self.done * size..(self.done + 1) * size];
        let (x, y) = halves(windows, tokens);
        let counter = (self.task.seed, self.done as u64);
        let score = replica.step(&x, &y, self.task.shape, counter, learning_rate).await?;
        self.done += 1;
        self.scores.push(score);
        Ok(Some(score))
    }

    /// Mean over the steps done so far.
    pub fn mean_score(&self) -> StepScore {
        let count = self.scores.len().max(1) as f64;
        let mean = |get: fn(&StepScore) -> f64| self.scores.iter().map(get).sum::<f64>() / count;
        StepScore { loss: mean(|s| s.loss), cross_entropy: mean(|s| s.cross_entropy) }
    }

    /// Trained minus base weights, in the order of [`super::shapes::of_replica`].
    ///
    /// # Errors
    ///
    /// [`BlockError::Parameters`] when reading fails.
    pub async fn delta(&self, replica: &Replica) -> Result<Vec<Vec<f32>>, BlockError> {
        let mut delta = replica.values().await?;
        for (trained, base) in delta.iter_mut().zip(&self.base) {
            trained.iter_mut().zip(base).for_each(|(trained, base)| *trained -= base);
        }
        Ok(delta)
    }
}

/// Tokens to read and those that follow them, of windows of T + 1.
pub(crate) fn halves(windows: &[u32], tokens: usize) -> (Vec<u32>, Vec<u32>) {
    let rows = || windows.chunks_exact(tokens + 1);
    (
        rows().flat_map(|row| &row[..tokens]).copied().collect(),
        rows().flat_map(|row| &row[1..]).copied().collect(),
    )
}
