//! IEEE 754 binary16, as bits.

use half::{f16, slice::HalfFloatSliceExt};

use super::{CodecError, Encoding, check_finite};

/// Rounds to binary16, to nearest, ties to even; subnormals are kept.
///
/// # Errors
/// NaN or infinity among the values, or a value of size 65520 or more, which would round to infinity.
pub fn encode(values: &[f32]) -> Result<Vec<u16>, CodecError> {
    check_finite(values)?;
    let mut halves = vec![f16::ZERO; values.len()];
    halves.convert_from_f32_slice(values);
    match first_not_finite(&halves) {
        Some(index) => Err(CodecError::Overflow { index, value: values[index], encoding: Encoding::F16 }),
        None => Ok(halves.into_iter().map(f16::to_bits).collect()),
    }
}

/// Widens binary16 codes; exact.
///
/// # Errors
/// A code of NaN or infinity.
pub fn decode(codes: &[u16]) -> Result<Vec<f32>, CodecError> {
    let halves: Vec<f16> = codes.iter().map(|&code| f16::from_bits(code)).collect();
    match first_not_finite(&halves) {
        Some(index) => Err(CodecError::NotFinite { index, value: halves[index].to_f32() }),
        None => {
            let mut values = vec![0.0; halves.len()];
            halves.convert_to_f32_slice(&mut values);
            Ok(values)
        }
    }
}

fn first_not_finite(halves: &[f16]) -> Option<usize> {
    // Without an early exit the compiler makes vector instructions of this; failures are rare.
    if halves.iter().fold(true, |all, half| all & half.is_finite()) {
        return None;
    }
    halves.iter().position(|half| !half.is_finite())
}
