//! Learning curves, compared.

use anyhow::{Result, ensure};
use protocol::view::CurvePoint;

/// The largest relative difference of two runs' training losses, step by step.
///
/// # Errors
/// When either lacks one of the steps 1 to `steps`, or a loss is not finite.
pub fn largest_relative_difference(ours: &[CurvePoint], theirs: &[CurvePoint], steps: u64) -> Result<f64> {
    for curve in [ours, theirs] {
        let found: Vec<_> = curve.iter().map(|point| point.step).collect();
        ensure!(found == (1..=steps).collect::<Vec<_>>(), "the curve has steps {found:?}, not 1 to {steps}");
    }
    let mut largest = 0.0_f64;
    for (ours, theirs) in ours.iter().zip(theirs) {
        let difference = (ours.train_loss - theirs.train_loss).abs() / theirs.train_loss.abs();
        ensure!(difference.is_finite(), "step {}: {} and {}", ours.step, ours.train_loss, theirs.train_loss);
        largest = largest.max(difference);
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(losses: &[f64]) -> Vec<CurvePoint> {
        let point = |(step, loss): (u64, &f64)| CurvePoint {
            step,
            train_loss: *loss,
            validation_loss: None,
            learning_rate: 0.0,
            tokens_per_second: 0.0,
            evaluation: None,
            participation: None,
        };
        (1..).zip(losses).map(point).collect()
    }

    #[test]
    fn compares_step_by_step() {
        let ours = curve(&[4.0, 2.0]);
        assert_eq!(largest_relative_difference(&ours, &curve(&[4.0, 1.0]), 2).unwrap(), 1.0);
        assert!(largest_relative_difference(&ours, &curve(&[4.0]), 2).is_err());
        assert!(largest_relative_difference(&ours, &curve(&[4.0, f64::NAN]), 2).is_err());
    }
}
