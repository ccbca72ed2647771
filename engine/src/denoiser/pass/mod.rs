//! Passes of a denoiser on the processor and on burn's tensors.

pub(super) mod cpu;
pub(super) mod gpu;

use super::shapes::TIME_FEATURES;

/// phi(u): 128 cosines, then 128 sines.
pub(super) fn time_features(u: f64) -> [f32; TIME_FEATURES] {
    const HALF: usize = TIME_FEATURES / 2;
    let mut features = [0.0; TIME_FEATURES];
    for i in 0..HALF {
        let angle = u * libm::exp(-libm::log(1e4) * i as f64 / HALF as f64);
        features[i] = libm::cos(angle) as f32;
        features[HALF + i] = libm::sin(angle) as f32;
    }
    features
}
