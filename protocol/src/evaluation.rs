//! How good a model of block mode is, measured with the controls without which one number would mean nothing.

use serde::{Deserialize, Serialize};

/// Mean cross-entropies over held-out windows, in nats per token.
///
/// All but `local` and `scrambled` start from noise that knows nothing of the targets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// One sweep through all blocks from one draw of noise: the headline.
    pub one_draw: f64,
    /// K, draws in `many_draws`.
    pub draws: u32,
    /// The probabilities of K sweeps, averaged.
    pub many_draws: f64,
    /// One sweep from zeros instead of noise.
    pub from_zero: f64,
    /// After each step of the sweep; the last is `one_draw`.
    pub chain: Vec<f64>,
    /// Each block alone, from noise at its step's sigma.
    pub alone: Vec<f64>,
    /// Each block on the noisy target itself, as in training. Leaky: the target shines through the noise.
    pub local: Vec<f64>,
    /// The same with the context of another sequence: what of `local` the leak alone gives.
    pub scrambled: Vec<f64>,
}

impl Scores {
    /// Whether every number is finite.
    pub fn is_finite(&self) -> bool {
        let Scores { one_draw, draws: _, many_draws, from_zero, chain, alone, local, scrambled } = self;
        let lists = chain.iter().chain(alone).chain(local).chain(scrambled);
        [one_draw, many_draws, from_zero].into_iter().chain(lists).all(|score| score.is_finite())
    }

    /// Mean of several batches' scores; None if there are none, or if they are of different models.
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
