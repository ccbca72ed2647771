//! Blockwise int8: per block of consecutive values one f32 scale, the largest size over 127.

use std::num::NonZeroUsize;

use super::{CodecError, Encoding, check_finite};

/// Values per block on the wire.
pub const WIRE_BLOCK: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Largest size of a quantised value.
const LARGEST: f32 = 127.0;

/// A tensor of n values in int8, in blocks of b; the last one may be shorter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Blocks {
    /// ceil(n / b), one for each block: finite, not negative, and finite times 127.
    pub scales: Vec<f32>,
    /// n, one for each value: from -127 to 127.
    pub quanta: Vec<i8>,
}

/// Quantises blocks of `block` consecutive values, all in f32:
///
/// ```text
/// scale = max|x| / 127;  q = clamp(round_half_even(x / scale), -127, 127)
/// ```
///
/// A scale of 0 (all zeros, or the division underflows) gives q = 0. Subnormal scales are kept. The
/// division is not replaced by a product with 1/scale, which rounds differently.
///
/// # Errors
/// NaN or infinity among the values, or a block whose largest value would decode to infinity.
pub fn quantize(values: &[f32], block: NonZeroUsize) -> Result<Blocks, CodecError> {
    check_finite(values)?;
    let mut scales = Vec::with_capacity(values.len().div_ceil(block.get()));
    let mut quanta = Vec::with_capacity(values.len());
    for (number, values) in values.chunks(block.get()).enumerate() {
        let largest = values.iter().fold(0_f32, |largest, value| largest.max(value.abs()));
        let scale = largest / LARGEST;
        if !(scale * LARGEST).is_finite() {
            let within = values.iter().position(|value| value.abs() == largest).unwrap_or_default();
            let index = number * block.get() + within;
            return Err(CodecError::Overflow { index, value: values[within], encoding: Encoding::Int8 });
        }
        scales.push(scale);
        if scale == 0.0 {
            quanta.resize(quanta.len() + values.len(), 0);
        } else {
            quanta.extend(
                values.iter().map(|value| round_half_even(value / scale).clamp(-LARGEST, LARGEST) as i8),
            );
        }
    }
    Ok(Blocks { scales, quanta })
}

/// Restores y = q * scale, in f32; what it gives is finite.
///
/// # Errors
/// A number of scales other than one per block, a scale that is NaN, infinite, negative or overflows
/// times 127, or a q of -128.
pub fn dequantize(blocks: &Blocks, block: NonZeroUsize) -> Result<Vec<f32>, CodecError> {
    let Blocks { scales, quanta } = blocks;
    if scales.len() != quanta.len().div_ceil(block.get()) {
        return Err(CodecError::Scales { scales: scales.len(), values: quanta.len(), block: block.get() });
    }
    if let Some(block) = scales.iter().position(|&scale| !(scale >= 0.0 && (scale * LARGEST).is_finite())) {
        return Err(CodecError::Scale { block, scale: scales[block] });
    }
    if let Some(index) = quanta.iter().position(|&quantum| quantum == i8::MIN) {
        return Err(CodecError::Quantum { index });
    }
    let mut values = Vec::with_capacity(quanta.len());
    for (quanta, &scale) in quanta.chunks(block.get()).zip(scales) {
        values.extend(quanta.iter().map(|&quantum| f32::from(quantum) * scale));
    }
    Ok(values)
}

/// Rounds |x| < 2^22 to the nearest integer, ties to even. Here |x| stays below 191: it exceeds 127 by a
/// rounding error, and by a half only where the scale is the smallest subnormal.
///
/// Added to 1.5 * 2^23, a value loses just its fraction, in the floats' own rounding mode. Unlike
/// `f32::round_ties_even` this needs no function call on plain x86-64.
fn round_half_even(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0;
    (x + SHIFT) - SHIFT
}
