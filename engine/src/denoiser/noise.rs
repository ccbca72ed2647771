//! Noise of the block denoiser: its law, the range each block owns, and the sweep of inference.
//!
//! A noise level sigma follows a log-normal law, `ln sigma ~ N(mean, deviation^2)`, whose distribution
//! function is F. [sigma_min, sigma_max] is cut into B pieces of equal F, and block 0 owns the highest
//! (after DiffusionBlocks, Shing, Koyama and Akiba, <https://arxiv.org/abs/2506.14202>):
//!
//! ```text
//! F(s)           = Phi((ln s - mean) / deviation)
//! boundaries     s_i = Finv(q_i), q_i evenly spaced from F(sigma_min) to F(sigma_max), i = 0..B
//! training range [max(lo / r, sigma_min), min(hi r, sigma_max)], r = (hi / lo)^gamma, of a block that owns [lo, hi]
//! training sigma Finv(u), u uniform in F of the training range
//! sweep          T points evenly spaced in F from sigma_max down to sigma_min, both included; of one step [sigma_max]
//! ```
//!
//! Everything is f64 and uses `libm` alone, so that a tab, a native worker and the coordinator compute the
//! same bits. F and Finv are clamped at the ends.
//!
//! Why sigma is in [1, 10] unless a run says otherwise: a target of length 1 in noise of deviation sigma
//! carries at most 1 / (2 sigma^2) nats, so that below about 0.5 the target leaks through z and the context
//! is ignored.

use std::f64::consts::{PI, SQRT_2};

/// Standard deviation of the clean data, sd: what [`Preconditioning`] is made for.
pub const SIGMA_DATA: f64 = 0.5;

/// Why a noise schedule cannot be made. Every message names the field of `run.toml`.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoiseError {
    /// Not finite, or not above 0.
    #[error("blocks.sigma_min is {0}: give a finite number above 0, such as 1.0")]
    SigmaMin(f64),
    /// Not finite, or not above sigma_min.
    #[error("blocks.sigma_max is {sigma_max}: give a finite number above blocks.sigma_min, {sigma_min}")]
    SigmaMax {
        /// As the run says.
        sigma_min: f64,
        /// As the run says.
        sigma_max: f64,
    },
    /// B is 0.
    #[error("blocks.count is 0: give at least 1 block")]
    NoBlocks,
    /// Not finite, or negative.
    #[error("blocks.gamma is {0}: give a finite number of at least 0, such as 0.1")]
    Gamma(f64),
    /// Not finite.
    #[error("blocks.p_mean is {0}: give a finite number, such as -1.2")]
    Mean(f64),
    /// Not finite, or not above 0.
    #[error("blocks.p_std is {0}: give a finite number above 0, such as 1.2")]
    Deviation(f64),
    /// Two boundaries would be one number in f64.
    #[error(
        "blocks.sigma_min to blocks.sigma_max, {sigma_min} to {sigma_max}, has too little of the noise law \
         to be cut into blocks.count = {blocks} pieces: move the range towards exp(blocks.p_mean), raise \
         blocks.p_std, or use fewer blocks"
    )]
    TooFine {
        /// As the run says.
        sigma_min: f64,
        /// As the run says.
        sigma_max: f64,
        /// B.
        blocks: u32,
    },
}

/// Phi(x) = erfc(-x / sqrt(2)) / 2, the standard normal distribution function.
pub fn normal_cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x / SQRT_2)
}

/// The x with Phi(x) = q, to a few units in the last place of what `q` allows.
///
/// The rational approximation 26.2.23 of Abramowitz and Stegun (off by at most 4.5e-4), then Halley's method
/// on Phi. Minus or plus infinity for q of at most 0 or at least 1, NaN for NaN.
pub fn normal_quantile(q: f64) -> f64 {
    if q <= 0.0 {
        f64::NEG_INFINITY
    } else if q >= 1.0 {
        f64::INFINITY
    } else if q > 0.5 {
        // 1 - q is exact here, and the lower tail keeps its digits.
        -lower_quantile(1.0 - q)
    } else if q < 0.5 {
        lower_quantile(q)
    } else if q.is_nan() {
        q
    } else {
        0.0
    }
}

/// [`normal_quantile`] for 0 < p < 1/2.
fn lower_quantile(p: f64) -> f64 {
    // The error shrinks from 5e-4 to its cube in one step: the second is exact, the third for far tails.
    const STEPS: usize = 3;
    let t = libm::sqrt(-2.0 * libm::log(p));
    let numerator = 2.515517 + t * (0.802853 + t * 0.010328);
    let denominator = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    let mut x = numerator / denominator - t;
    for _ in 0..STEPS {
        // Newton's step, (Phi(x) - p) / Phi'(x).
        let newton = (normal_cdf(x) - p) * libm::sqrt(2.0 * PI) * libm::exp(0.5 * x * x);
        let halley = newton / (1.0 + 0.5 * x * newton);
        // Where p is below the normal numbers, exp overflows: the approximation must do.
        if !halley.is_finite() {
            break;
        }
        x -= halley;
    }
    x
}

/// The log-normal law of sigma.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseLaw {
    /// P_mean, of ln sigma.
    pub mean: f64,
    /// P_std, of ln sigma.
    pub deviation: f64,
}

impl NoiseLaw {
    /// F(sigma) = Phi((ln sigma - mean) / deviation); 0 at sigma = 0.
    pub fn cdf(&self, sigma: f64) -> f64 {
        normal_cdf((libm::log(sigma) - self.mean) / self.deviation)
    }

    /// Finv(q): 0 for q of at most 0, infinity for q of at least 1.
    pub fn quantile(&self, q: f64) -> f64 {
        libm::exp(self.mean + self.deviation * normal_quantile(q))
    }
}

/// The scalings of EDM at one sigma, with [`SIGMA_DATA`] as sd.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preconditioning {
    /// sd^2 / (sigma^2 + sd^2): how much of the noisy input is kept.
    pub c_skip: f64,
    /// sigma sd / sqrt(sigma^2 + sd^2): scale of the network's output.
    pub c_out: f64,
    /// 1 / sqrt(sigma^2 + sd^2): scale of the network's input.
    pub c_in: f64,
    /// ln(sigma) / 4: what the time embedding sees.
    pub c_noise: f64,
    /// (sigma^2 + sd^2) / (sigma sd)^2: weight of the sample's loss.
    pub weight: f64,
}

impl Preconditioning {
    /// At sigma > 0.
    pub fn at(sigma: f64) -> Self {
        let variance = sigma * sigma + SIGMA_DATA * SIGMA_DATA;
        let product = sigma * SIGMA_DATA;
        Preconditioning {
            c_skip: SIGMA_DATA * SIGMA_DATA / variance,
            c_out: product / libm::sqrt(variance),
            c_in: 1.0 / libm::sqrt(variance),
            c_noise: libm::log(sigma) / 4.0,
            weight: variance / (product * product),
        }
    }
}

/// Which noise belongs to which block.
#[derive(Debug, Clone, PartialEq)]
pub struct NoiseSchedule {
    law: NoiseLaw,
    /// B + 1 sigmas, ascending.
    boundaries: Vec<f64>,
    /// Per block, block 0 first.
    training: Vec<Training>,
}

/// What a block is trained on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Training {
    /// Lowest and highest sigma.
    range: (f64, f64),
    /// F of both.
    quantiles: (f64, f64),
}

impl NoiseSchedule {
    /// Cuts [sigma_min, sigma_max] into `blocks` pieces of equal F.
    ///
    /// `gamma` widens the range a block is trained on, see [`NoiseSchedule::training_range`].
    ///
    /// # Errors
    /// [`NoiseError`]: a number out of its range, or pieces too small to be told apart in f64.
    pub fn new(
        law: NoiseLaw,
        sigma_min: f64,
        sigma_max: f64,
        blocks: u32,
        gamma: f64,
    ) -> Result<NoiseSchedule, NoiseError> {
        if !(sigma_min > 0.0 && sigma_min.is_finite()) {
            return Err(NoiseError::SigmaMin(sigma_min));
        }
        if !(sigma_max > sigma_min && sigma_max.is_finite()) {
            return Err(NoiseError::SigmaMax { sigma_min, sigma_max });
        }
        if blocks == 0 {
            return Err(NoiseError::NoBlocks);
        }
        if !(gamma >= 0.0 && gamma.is_finite()) {
            return Err(NoiseError::Gamma(gamma));
        }
        if !law.mean.is_finite() {
            return Err(NoiseError::Mean(law.mean));
        }
        if !(law.deviation > 0.0 && law.deviation.is_finite()) {
            return Err(NoiseError::Deviation(law.deviation));
        }

        let (lowest, highest) = (law.cdf(sigma_min), law.cdf(sigma_max));
        let inner =
            (1..blocks).map(|i| law.quantile(lowest + (highest - lowest) * f64::from(i) / f64::from(blocks)));
        let boundaries: Vec<f64> =
            std::iter::once(sigma_min).chain(inner).chain(std::iter::once(sigma_max)).collect();
        // In a far tail F is the same number at both ends.
        if !(lowest < highest && boundaries.windows(2).all(|pair| pair[0] < pair[1])) {
            return Err(NoiseError::TooFine { sigma_min, sigma_max, blocks });
        }

        let training = boundaries.windows(2).rev().map(|own| {
            let widening = libm::pow(own[1] / own[0], gamma);
            let range = ((own[0] / widening).max(sigma_min), (own[1] * widening).min(sigma_max));
            Training { range, quantiles: (law.cdf(range.0), law.cdf(range.1)) }
        });
        Ok(NoiseSchedule { law, training: training.collect(), boundaries })
    }

    /// B.
    pub fn blocks(&self) -> u32 {
        self.training.len() as u32
    }

    /// B + 1 sigmas, ascending; the first is exactly sigma_min, the last exactly sigma_max.
    pub fn boundaries(&self) -> &[f64] {
        &self.boundaries
    }

    /// Lowest and highest sigma that `block` owns: [`NoiseSchedule::owner`] sends it those from the lowest
    /// on, the highest not included.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn range(&self, block: u32) -> (f64, f64) {
        let piece = self.training.len() - 1 - block as usize;
        (self.boundaries[piece], self.boundaries[piece + 1])
    }

    /// Lowest and highest sigma that `block` is trained on: its own range [lo, hi], widened at both ends by
    /// the factor (hi / lo)^gamma, within [sigma_min, sigma_max].
    ///
    /// # Panics
    /// If there is no such block.
    pub fn training_range(&self, block: u32) -> (f64, f64) {
        self.training[block as usize].range
    }

    /// F at the ends of [`NoiseSchedule::training_range`].
    ///
    /// # Panics
    /// If there is no such block.
    pub fn training_quantiles(&self, block: u32) -> (f64, f64) {
        self.training[block as usize].quantiles
    }

    /// The sigma of `u`, uniform in [0, 1), on which `block` is trained: Finv(q_lo + u (q_hi - q_lo)), with q
    /// of [`NoiseSchedule::training_quantiles`], and never outside the training range.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn sigma(&self, block: u32, u: f64) -> f64 {
        let Training { range: (low, high), quantiles: (q_low, q_high) } = self.training[block as usize];
        self.law.quantile(q_low + u * (q_high - q_low)).clamp(low, high)
    }

    /// The block that denoises at `sigma`: see [`owner`].
    pub fn owner(&self, sigma: f64) -> u32 {
        owner(&self.boundaries, sigma)
    }

    /// The sigmas of inference with every block used once: [`NoiseSchedule::sweep`] of B steps, where block t
    /// makes step t.
    pub fn one_sweep(&self) -> Vec<f64> {
        self.sweep(self.blocks())
    }

    /// `steps` sigmas, descending and evenly spaced in F: the first exactly sigma_max, the last exactly
    /// sigma_min. A sweep of one step is sigma_max alone, one of none is empty.
    pub fn sweep(&self, steps: u32) -> Vec<f64> {
        let (sigma_min, sigma_max) = (self.boundaries[0], self.boundaries[self.training.len()]);
        let (lowest, highest) = (self.law.cdf(sigma_min), self.law.cdf(sigma_max));
        let at = |step: u32| {
            if step == 0 {
                return sigma_max;
            }
            if step + 1 == steps {
                return sigma_min;
            }
            let share = f64::from(step) / f64::from(steps - 1);
            self.law.quantile(highest + (lowest - highest) * share).clamp(sigma_min, sigma_max)
        };
        (0..steps).map(at).collect()
    }
}

/// The block that owns `sigma`, given the ascending `boundaries` of B blocks: with k inner boundaries of at
/// most sigma, block B - 1 - k.
///
/// Whatever lies outside the range, or on an end that was rounded to f32, falls to the block at that end. NaN
/// falls to the last block.
pub fn owner(boundaries: &[f64], sigma: f64) -> u32 {
    let inner = boundaries.get(1..boundaries.len().saturating_sub(1)).unwrap_or_default();
    // Those above it, counted, give B - 1 - k; NaN is to be below them all.
    inner.iter().filter(|&&boundary| boundary > sigma || sigma.is_nan()).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAW: NoiseLaw = NoiseLaw { mean: -1.2, deviation: 1.2 };

    fn schedule(blocks: u32) -> NoiseSchedule {
        NoiseSchedule::new(LAW, 1.0, 10.0, blocks, 0.1).unwrap()
    }

    #[test]
    fn quantile_inverts_the_distribution() {
        for q in [1e-300, 1e-100, 1e-12, 1e-5, 0.02, 0.3, 0.499_999, 0.500_001, 0.7, 0.99, 0.999_999_9] {
            let back = normal_cdf(normal_quantile(q));
            assert!((back - q).abs() <= 1e-12 * q, "{q} became {back}");
        }
        for x in [-37.0, -12.0, -3.0, -0.1, 0.0, 0.7, 2.9, 5.0] {
            let back = normal_quantile(normal_cdf(x));
            // What 1 - q keeps of the upper tail.
            assert!((back - x).abs() <= 1e-9, "{x} became {back}");
        }
    }

    #[test]
    fn quantile_at_and_beyond_the_ends() {
        assert_eq!(normal_quantile(0.5), 0.0);
        assert_eq!(normal_quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(normal_quantile(-1.0), f64::NEG_INFINITY);
        assert_eq!(normal_quantile(1.0), f64::INFINITY);
        assert_eq!(normal_quantile(2.0), f64::INFINITY);
        assert!(normal_quantile(f64::NAN).is_nan());
        let tiniest = normal_quantile(f64::from_bits(1));
        assert!((-39.0..-38.0).contains(&tiniest), "{tiniest}");
        assert_eq!(LAW.quantile(0.0), 0.0);
        assert_eq!(LAW.quantile(1.0), f64::INFINITY);
        assert_eq!(LAW.cdf(0.0), 0.0);
    }

    #[test]
    fn quantile_never_falls() {
        let quantiles: Vec<f64> = (1..20_000).map(|i| normal_quantile(f64::from(i) / 20_000.0)).collect();
        assert!(quantiles.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn one_sweep_uses_every_block_once_and_in_order() {
        for blocks in 2..=12 {
            for (sigma_min, sigma_max) in [(1.0, 10.0), (0.002, 80.0), (0.7, 7.3)] {
                let schedule = NoiseSchedule::new(LAW, sigma_min, sigma_max, blocks, 0.1).unwrap();
                let sigmas = schedule.one_sweep();
                assert_eq!((sigmas[0], sigmas[blocks as usize - 1]), (sigma_max, sigma_min));
                let owners: Vec<u32> = sigmas.iter().map(|&sigma| schedule.owner(sigma)).collect();
                assert_eq!(owners, (0..blocks).collect::<Vec<_>>(), "{sigma_min} to {sigma_max}");
            }
        }
    }

    #[test]
    fn short_sweeps() {
        assert_eq!(schedule(1).one_sweep(), [10.0]);
        assert!(schedule(3).sweep(0).is_empty());
        assert_eq!(schedule(3).sweep(1), [10.0]);
        assert_eq!(schedule(3).sweep(2), [10.0, 1.0]);
    }

    #[test]
    fn ranges_descend_and_meet() {
        for blocks in 1..=12 {
            let schedule = schedule(blocks);
            assert_eq!(schedule.blocks(), blocks);
            assert_eq!(schedule.range(0).1, 10.0);
            assert_eq!(schedule.range(blocks - 1).0, 1.0);
            for block in 0..blocks {
                let (low, high) = schedule.range(block);
                assert!(low < high);
                assert_eq!(schedule.owner(low), block);
                assert_eq!(schedule.owner(libm::sqrt(low * high)), block);
                if block > 0 {
                    assert_eq!(high, schedule.range(block - 1).0);
                    assert_eq!(schedule.owner(high), block - 1);
                }
            }
        }
    }

    #[test]
    fn training_ranges_are_wider_but_stay_inside() {
        for blocks in 1..=12 {
            let schedule = schedule(blocks);
            for block in 0..blocks {
                let ((own_low, own_high), (low, high)) =
                    (schedule.range(block), schedule.training_range(block));
                assert!(1.0 <= low && low <= own_low && own_high <= high && high <= 10.0);
                assert_eq!(low < own_low, block + 1 < blocks);
                assert_eq!(high > own_high, block > 0);
                for u in [0.0, 1e-300, 0.25, 0.5, 0.999, 1.0 - f64::EPSILON, 1.0] {
                    let sigma = schedule.sigma(block, u);
                    assert!((low..=high).contains(&sigma), "block {block}, u {u}: {sigma}");
                }
            }
        }
        let narrow = NoiseSchedule::new(LAW, 1.0, 10.0, 4, 0.0).unwrap();
        assert!((0..4).all(|block| narrow.range(block) == narrow.training_range(block)));
    }

    #[test]
    fn noise_outside_the_range_falls_to_the_ends() {
        let schedule = schedule(4);
        for (sigma, block) in [(0.0, 3), (0.5, 3), (1.0, 3), (10.0, 0), (11.0, 0), (f64::INFINITY, 0)] {
            assert_eq!(schedule.owner(sigma), block, "{sigma}");
        }
        assert_eq!(schedule.owner(f64::NAN), 3);
        assert_eq!(owner(&[], 1.0), 0);
    }

    #[test]
    fn what_makes_no_schedule_is_named() {
        let good = (LAW, 1.0, 10.0, 3, 0.1);
        let make = |(law, min, max, blocks, gamma)| NoiseSchedule::new(law, min, max, blocks, gamma);
        assert!(make(good).is_ok());
        let cases = [
            ((LAW, 0.0, 10.0, 3, 0.1), "blocks.sigma_min "),
            ((LAW, f64::NAN, 10.0, 3, 0.1), "blocks.sigma_min "),
            ((LAW, f64::INFINITY, 10.0, 3, 0.1), "blocks.sigma_min "),
            ((LAW, 10.0, 10.0, 3, 0.1), "blocks.sigma_max "),
            ((LAW, 1.0, f64::INFINITY, 3, 0.1), "blocks.sigma_max "),
            ((LAW, 1.0, f64::NAN, 3, 0.1), "blocks.sigma_max "),
            ((LAW, 1.0, 10.0, 0, 0.1), "blocks.count "),
            ((LAW, 1.0, 10.0, 3, -0.1), "blocks.gamma "),
            ((LAW, 1.0, 10.0, 3, f64::INFINITY), "blocks.gamma "),
            ((NoiseLaw { mean: f64::NAN, ..LAW }, 1.0, 10.0, 3, 0.1), "blocks.p_mean "),
            ((NoiseLaw { deviation: 0.0, ..LAW }, 1.0, 10.0, 3, 0.1), "blocks.p_std "),
            ((NoiseLaw { deviation: f64::NAN, ..LAW }, 1.0, 10.0, 3, 0.1), "blocks.p_std "),
            // F is 1 at both ends.
            ((LAW, 1e6, 1e7, 3, 0.1), "blocks.sigma_min to blocks.sigma_max"),
            ((LAW, 1e6, 1e7, 1, 0.1), "blocks.sigma_min to blocks.sigma_max"),
        ];
        for (bad, field) in cases {
            let error = make(bad).unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }
}
