//! The learning rate of a step: linear warm-up, then half a cosine down to a floor.

use std::f64::consts::PI;

/// Warm-up and cosine decay by optimizer step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearningRate {
    /// Rate at the end of the warm-up.
    pub peak: f64,
    /// Rate from the last step on.
    pub floor: f64,
    /// Steps of linear warm-up; 0 starts at the peak.
    pub warmup_steps: u64,
    /// Steps of the whole run.
    pub total_steps: u64,
}

impl LearningRate {
    /// The rate for the update of step `step`, counted from 0.
    ///
    /// Warm-up: `peak * (step + 1) / warmup_steps`, so that the first update already moves the weights.
    /// After it: `floor + (peak - floor) * (1 + cos(pi * progress)) / 2`, with progress from 0 at the first
    /// step after the warm-up to 1 at `total_steps`.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step + 1) as f64 / self.warmup_steps as f64;
        }
        if step >= self.total_steps {
            return self.floor;
        }
        let progress = (step - self.warmup_steps) as f64 / (self.total_steps - self.warmup_steps) as f64;
        self.floor + (self.peak - self.floor) * 0.5 * (1.0 + libm::cos(PI * progress))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: LearningRate = LearningRate { peak: 1e-3, floor: 1e-4, warmup_steps: 10, total_steps: 110 };

    #[test]
    fn warms_up_linearly_to_the_peak() {
        assert_eq!(RATE.at(0), 1e-4);
        assert_eq!(RATE.at(4), 5e-4);
        assert_eq!(RATE.at(9), 1e-3);
        assert_eq!(RATE.at(10), 1e-3);
    }

    #[test]
    fn falls_by_a_half_cosine_to_the_floor_and_stays_there() {
        assert!((RATE.at(60) - 5.5e-4).abs() < 1e-15);
        assert!(RATE.at(109) > 1e-4 && RATE.at(109) < 1.01e-4);
        assert_eq!(RATE.at(110), 1e-4);
        assert_eq!(RATE.at(u64::MAX), 1e-4);
        let rates: Vec<f64> = (10..=110).map(|step| RATE.at(step)).collect();
        assert!(rates.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn a_run_shorter_than_its_warmup_only_warms_up() {
        let rate = LearningRate { total_steps: 5, ..RATE };
        assert_eq!(rate.at(4), 5e-4);
        assert_eq!(rate.at(10), 1e-4);
    }

    #[test]
    fn without_warmup_it_starts_at_the_peak() {
        let rate = LearningRate { warmup_steps: 0, ..RATE };
        assert_eq!(rate.at(0), 1e-3);
    }
}
