//! Medians and percentiles.

use anyhow::{Context, Result};

/// The value that this share of all values does not exceed.
pub fn quantile(values: &[f64], share: f64) -> Result<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().context("nothing was measured")
}

pub fn median(values: &[f64]) -> Result<f64> {
    quantile(values, 0.5)
}

/// To four digits: more than a noisy machine gives.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(median(&values).unwrap(), 3.0);
        assert_eq!(quantile(&values, 0.99).unwrap(), 5.0);
        assert_eq!(quantile(&values, 0.0).unwrap(), 1.0);
        assert!(median(&[]).is_err());
        assert_eq!(rounded(123_456.0), 123_500.0);
        assert_eq!(rounded(0.0), 0.0);
    }
}
