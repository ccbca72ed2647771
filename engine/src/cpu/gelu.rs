//! GPT-2's GELU, `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`, in the equal form
//! `x s(x)` with `s(x) = 1 / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3)))`.

use super::{
    parallel,
    simd::{exp, vectorised},
};

/// 2 sqrt(2 / pi).
const SLOPE: f32 = 1.595_769_2;
const CUBIC: f32 = 0.044_715;

/// Adds `bias` to the rows of `h` in place and returns their GELU.
pub(crate) fn biased(h: &mut [f32], bias: &[f32]) -> Vec<f32> {
    let width = bias.len();
    let grain = parallel::grain(h.len() / width, width) * width;
    let mut out = vec![0.0; h.len()];
    parallel::each(h.chunks_mut(grain).zip(out.chunks_mut(grain)).collect(), |(h, out)| {
        add_and_apply(h, bias, out);
    });
    out
}

/// GELU of every number.
pub(crate) fn apply(h: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; h.len()];
    parallel::rows(&mut out, 1, |first, out| apply_each(&h[first..first + out.len()], out));
    out
}

/// Turns the gradient of the output into that of the input, in place.
pub(crate) fn backward(dy: &mut [f32], h: &[f32]) {
    parallel::rows(dy, 1, |first, dy| multiply_by_slope(dy, &h[first..first + dy.len()]));
}

/// `exp(-2 sqrt(2/pi) (x + 0.044715 x^3))`, so that `s(x) = 1 / (1 + decay)`.
#[inline(always)]
fn decay(x: f32) -> f32 {
    exp(-SLOPE * x * (1.0 + CUBIC * x * x))
}

vectorised! {
    fn add_and_apply(h: &mut [f32], bias: &[f32], out: &mut [f32]) {
        let width = bias.len();
        for (h, out) in h.chunks_exact_mut(width).zip(out.chunks_exact_mut(width)) {
            for i in 0..width {
                let x = h[i] + bias[i];
                h[i] = x;
                out[i] = x / (1.0 + decay(x));
            }
        }
    }

    fn apply_each(h: &[f32], out: &mut [f32]) {
        for (&x, out) in h.iter().zip(out) {
            *out = x / (1.0 + decay(x));
        }
    }

    fn multiply_by_slope(dy: &mut [f32], h: &[f32]) {
        for (dy, &x) in dy.iter_mut().zip(h) {
            let e = decay(x);
            let s = 1.0 / (1.0 + e);
            // 1 - s without its cancellation is e s.
            *dy *= s + x * s * (e * s) * SLOPE * (1.0 + 3.0 * CUBIC * x * x);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(x: f64) -> f64 {
        0.5 * x * (1.0 + libm::tanh((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)))
    }

    #[test]
    fn equals_the_tanh_form() {
        let x: Vec<f32> = (-12_000..=12_000).map(|i| i as f32 * 1e-3).collect();
        for (x, y) in x.iter().zip(apply(&x)) {
            let exact = exact(f64::from(*x));
            assert!(
                (f64::from(y) - exact).abs() <= 2e-6 * exact.abs() + 1e-12,
                "gelu({x}) = {y}, not {exact}"
            );
        }
    }

    #[test]
    fn its_slope_is_the_difference_quotient() {
        let x: Vec<f32> = (-600..=600).map(|i| i as f32 * 1e-2).collect();
        let mut slope = vec![1.0; x.len()];
        backward(&mut slope, &x);
        for (&x, slope) in x.iter().zip(slope) {
            let x = f64::from(x);
            let quotient = (exact(x + 1e-5) - exact(x - 1e-5)) / 2e-5;
            assert!((f64::from(slope) - quotient).abs() < 1e-6, "slope at {x}: {slope}, not {quotient}");
        }
    }
}
