//! Comparisons that several sets share.

use serde::Deserialize;

use super::Report;

/// Of a parameter, without the key bias.
#[derive(Deserialize)]
pub(super) struct Checksum {
    pub sum: f64,
    pub l2: f64,
}

/// The largest difference of a tensor, relative to the largest golden number.
pub(super) fn relative(
    report: &mut Report,
    kind: &'static str,
    found: &[f32],
    golden: &[f32],
    tolerance: f64,
    place: impl FnOnce() -> String,
) {
    let mut difference = if found.len() == golden.len() { 0.0f64 } else { f64::NAN };
    let mut highest = 0.0f64;
    for (found, golden) in found.iter().zip(golden) {
        let here = f64::from(found - golden).abs();
        // `max` would pass over NaN.
        difference = if here <= difference { difference } else { here };
        highest = highest.max(f64::from(golden.abs()));
    }
    report.note(kind, difference, tolerance * highest, place);
}

/// Entries of a parameter that are the key bias, whose gradient is exactly 0 and noise in floats.
pub(super) fn key_bias(name: &str, len: usize) -> std::ops::Range<usize> {
    if name.ends_with("attn.c_attn.bias") { len / 3..2 * len / 3 } else { 0..0 }
}

pub(super) fn checksum(name: &str, values: &[f32]) -> Checksum {
    let keys = key_bias(name, values.len());
    let (mut sum, mut squares) = (0.0, 0.0);
    for (_, &value) in values.iter().enumerate().filter(|(index, _)| !keys.contains(index)) {
        sum += f64::from(value);
        squares += f64::from(value) * f64::from(value);
    }
    Checksum { sum, l2: libm::sqrt(squares) }
}
