//! AdamW on the processor, in one pass over memory.

use super::Update;
use crate::{
    cpu::{
        parallel,
        simd::{LANES, vectorised},
    },
    parameters::{CpuParameter, CpuUpdate},
};

/// What one update multiplies by.
#[derive(Clone, Copy)]
struct Factors {
    clip: f32,
    beta1: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    /// 1 - lr * weight decay.
    keep: f32,
    /// lr / (1 - beta1^t).
    rate: f32,
    /// 1 / (1 - beta2^t).
    correction2: f32,
    epsilon: f32,
}

impl Factors {
    /// In f64, rounded once.
    fn new(update: Update<'_>, decays: bool) -> Self {
        let Update { clip_scale, learning_rate, optimizer: spec, step } = update;
        let correction = |beta: f64| 1.0 - libm::pow(beta, step as f64);
        let decay = if decays { learning_rate * spec.weight_decay } else { 0.0 };
        Factors {
            clip: clip_scale as f32,
            beta1: spec.beta1 as f32,
            rest1: (1.0 - spec.beta1) as f32,
            beta2: spec.beta2 as f32,
            rest2: (1.0 - spec.beta2) as f32,
            keep: (1.0 - decay) as f32,
            rate: (learning_rate / correction(spec.beta1)) as f32,
            correction2: (1.0 / correction(spec.beta2)) as f32,
            epsilon: spec.epsilon as f32,
        }
    }
}

/// Updates a parameter in place. Without a gradient nothing happens.
pub(super) fn apply(parameter: &mut CpuParameter, update: Update<'_>, decays: bool) {
    const PIECE: usize = 1 << 15;
    let factors = Factors::new(update, decays);
    let Some(CpuUpdate { value, gradient, first, second }) = parameter.update() else { return };
    let state = first.chunks_mut(PIECE).zip(second.chunks_mut(PIECE));
    let pieces: Vec<_> = value.chunks_mut(PIECE).zip(gradient.chunks(PIECE)).zip(state).collect();
    parallel::each(pieces, |((value, gradient), (first, second))| {
        adamw(value, gradient, first, second, factors);
    });
}

/// Sum of squares, in f64 over pieces summed in f32.
pub(super) fn squared_norm(values: &[f32]) -> f64 {
    const PIECE: usize = 1 << 12;
    let pieces: Vec<_> = values.chunks(PIECE).collect();
    parallel::map(pieces, squares).into_iter().map(f64::from).sum()
}

vectorised! {
    fn adamw(value: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32], f: Factors) {
        let len = value.len();
        let (gradient, first, second) = (&gradient[..len], &mut first[..len], &mut second[..len]);
        for i in 0..len {
            let g = f.clip * gradient[i];
            let m = f.beta1 * first[i] + f.rest1 * g;
            let v = f.beta2 * second[i] + f.rest2 * g * g;
            first[i] = m;
            second[i] = v;
            value[i] = value[i] * f.keep - f.rate * m / ((v * f.correction2).sqrt() + f.epsilon);
        }
    }

    fn squares(values: &[f32]) -> f32 {
        let mut lanes = [0.0f32; LANES];
        let chunks = values.chunks_exact(LANES);
        let tail: f32 = chunks.remainder().iter().map(|x| x * x).sum();
        for chunk in chunks {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *lane += x * x;
            }
        }
        lanes.iter().sum::<f32>() + tail
    }
}
