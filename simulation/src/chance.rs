//! Chance from counters: a number depends on its keys alone, whoever asks and in whatever order.

use control::mix::mix;
use engine::denoiser::noise::normal_quantile;

fn bits(keys: &[u64]) -> u64 {
    keys.iter().fold(0x7369_6d75, |key, next| mix(key ^ mix(*next)))
}

/// Even in (0, 1).
pub fn even(keys: &[u64]) -> f64 {
    ((bits(keys) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Normal, with mean 0 and deviation 1.
pub fn normal(keys: &[u64]) -> f64 {
    normal_quantile(even(keys))
}

/// `exp(spread N(0, 1))`: 1 in the middle.
pub fn log_normal(spread: f64, keys: &[u64]) -> f64 {
    if spread == 0.0 { 1.0 } else { libm::exp(spread * normal(keys)) }
}

/// One number after the other from a seed.
#[derive(Debug, Clone)]
pub struct Draws {
    seed: u64,
    drawn: u64,
}

impl Draws {
    /// The numbers of this seed, from the first.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        bits(&[self.seed, self.drawn]) % bound.max(1)
    }

    /// Even in (0, 1).
    pub fn even(&mut self) -> f64 {
        self.drawn += 1;
        even(&[self.seed, self.drawn])
    }
}
