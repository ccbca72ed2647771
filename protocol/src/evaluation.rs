//! How good a model of block mode is, measured with the controls without which one number would mean nothing.

use serde::{Deserialize, Serialize};

use crate::{
    checked::{RuleResult, at_most, checked_struct, list, within},
    limits,
};

/// A mean cross-entropy in nats.
fn score(value: &f64) -> RuleResult {
    within(-1e-3, 1e9)(value)
}

fn scores(value: &Vec<f64>) -> RuleResult {
    list(limits::BLOCKS, score)(value)
}

checked_struct! {
    /// Mean cross-entropies over held-out windows, in nats per token.
    ///
    /// All but `local` and `scrambled` start from noise that knows nothing of the targets.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    pub struct Scores {
        /// One sweep through all blocks from one draw of noise: the headline.
        pub one_draw: f64 => score,
        /// K, draws in `many_draws`.
        pub draws: u32 => at_most(limits::DRAWS),
        /// The probabilities of K sweeps, averaged.
        pub many_draws: f64 => score,
        /// One sweep from zeros instead of noise.
        pub from_zero: f64 => score,
        /// After each step of the sweep; the last is `one_draw`.
        pub chain: Vec<f64> => scores,
        /// Each block alone, from noise at its step's sigma.
        pub alone: Vec<f64> => scores,
        /// Each block on the noisy target itself, as in training. Leaky: the target is part of the input.
        pub local: Vec<f64> => scores,
        /// The same with the context of another sequence: what of `local` the leak alone gives.
        pub scrambled: Vec<f64> => scores,
    }
}

impl Scores {
    /// Whether every list has one score for each of so many blocks.
    pub fn is_of_blocks(&self, blocks: usize) -> bool {
        [&self.chain, &self.alone, &self.local, &self.scrambled].iter().all(|list| list.len() == blocks)
    }

    /// Mean of the scores of several batches, all weighing the same; None if there are none, or if they are of different models.
    pub fn mean(all: &[Scores]) -> Option<Scores> {
        let first = all.first()?;
        let number = |get: fn(&Scores) -> f64| all.iter().map(get).sum::<f64>() / all.len() as f64;
        let list = |get: fn(&Scores) -> &Vec<f64>| -> Option<Vec<f64>> {
            let len = get(first).len();
            if all.iter().any(|scores| get(scores).len() != len) {
                return None;
            }
            Some((0..len).map(|i| all.iter().map(|s| get(s)[i]).sum::<f64>() / all.len() as f64).collect())
        };
        Some(Scores {
            one_draw: number(|s| s.one_draw),
            draws: first.draws,
            many_draws: number(|s| s.many_draws),
            from_zero: number(|s| s.from_zero),
            chain: list(|s| &s.chain)?,
            alone: list(|s| &s.alone)?,
            local: list(|s| &s.local)?,
            scrambled: list(|s| &s.scrambled)?,
        })
    }
}
