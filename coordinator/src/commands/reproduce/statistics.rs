//! Mean and standard error over seeds.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub mean: f64,
    /// Standard error of the mean; 0 of a single number.
    pub error: f64,
}

impl Estimate {
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Estimate {
        let values: Vec<f64> = values.into_iter().collect();
        let n = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
        let error = if values.len() > 1 { (squares / (n - 1.0) / n).sqrt() } else { 0.0 };
        Estimate { mean, error }
    }

    /// Whether it lies above `other` by more than the errors of both together.
    pub(super) fn clearly_above(self, other: Estimate) -> bool {
        self.mean - other.mean > self.error.hypot(other.error)
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ± {:.3}", self.mean, self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_standard_error() {
        let estimate = Estimate::of([1.0, 2.0, 3.0]);
        assert_eq!(estimate.mean, 2.0);
        // Deviation 1 over the root of 3.
        assert!((estimate.error - 1.0 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(Estimate::of([5.0]), Estimate { mean: 5.0, error: 0.0 });
    }
}
