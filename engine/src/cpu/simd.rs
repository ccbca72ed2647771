//! Loops that compilers turn into vector instructions.

/// Declares functions that are compiled twice on x86-64: for every processor, and for those with AVX2, which
/// is chosen at run time. Elsewhere (WASM SIMD, NEON) the compiler's own baseline serves.
macro_rules! vectorised {
    ($($(#[$attribute:meta])* $visibility:vis fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments)]
        $visibility fn $name($($argument: $kind),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($($argument: $kind),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn wide($($argument: $kind),*) $(-> $result)? {
                    body($($argument),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has what `wide` was compiled for.
                    return unsafe { wide($($argument),*) };
                }
            }
            body($($argument),*)
        }
    )*};
}
pub(crate) use vectorised;

/// Independent partial sums, so that additions need not wait for each other.
pub(crate) const LANES: usize = 16;

/// e^x within 2 units in the last place for x in [-87, 88]; clamped outside.
///
/// Cephes' expf: x = n ln 2 + r, a polynomial for e^r, and 2^n through the exponent's bits.
#[inline(always)]
#[allow(clippy::excessive_precision)]
pub(crate) fn exp(x: f32) -> f32 {
    // Adding and subtracting 1.5 * 2^23 rounds to an integer, which then sits in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_375 + n * 2.121_944_4e-4;
    let p = 1.987_569_15e-4;
    let p = p * r + 1.398_199_95e-3;
    let p = p * r + 8.333_451_9e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_55e-1;
    let p = p * r + 5.000_000_1e-1;
    let y = p * r * r + r + 1.0;
    y * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}

/// Sum over `len` of `term(index)`.
#[inline(always)]
pub(crate) fn sum_of(len: usize, term: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let whole = len - len % LANES;
    for start in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(start + lane);
        }
    }
    let tail: f32 = (whole..len).map(term).sum();
    lanes.iter().sum::<f32>() + tail
}

/// Sum of a slice.
#[inline(always)]
pub(crate) fn sum(values: &[f32]) -> f32 {
    sum_of(values.len(), |i| values[i])
}

/// Largest of a slice; the lowest float if it is empty.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::MIN; LANES];
    let chunks = values.chunks_exact(LANES);
    let tail = chunks.remainder();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().chain(tail).fold(f32::MIN, |a, &b| if b > a { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate() {
        let mut worst = 0.0f64;
        for i in -870_000..=880_000 {
            let x = i as f32 * 1e-4;
            let exact = libm::exp(f64::from(x));
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2e-7, "largest relative error {worst}");
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e9) < 2e-38 && exp(-1e9) >= 0.0);
    }

    #[test]
    fn sums_and_maxima_take_every_value() {
        for len in [0, 1, 15, 16, 17, 100] {
            let values: Vec<f32> = (0..len).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
            assert_eq!(sum(&values), values.iter().sum::<f32>());
            assert_eq!(max(&values), values.iter().copied().fold(f32::MIN, f32::max));
        }
    }
}
