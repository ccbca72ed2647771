//! A block denoiser as pure functions on burn's tensors, for WebGPU. Formulas are at [`crate::denoiser`].

use burn_tensor::{Device, Int, Tensor, TensorData, activation, module};

use super::time_features;
use crate::{
    denoiser::{
        noise::Preconditioning,
        shapes::{TIME_FEATURES, index},
    },
    gpt2::shapes::LAYER_TENSORS,
    gpu::{
        ids,
        layer::{self, EPSILON},
        leaf,
    },
    parameters::BurnParameter,
    sizes::Sizes,
};

/// What is known of the noise, one value a sequence, [N, 1, 1]; features [N, 256].
struct Noise {
    c_in: Tensor<3>,
    c_out: Tensor<3>,
    c_skip: Tensor<3>,
    features: Tensor<2>,
}

impl Noise {
    fn new(noise: &[Preconditioning], device: &Device) -> Self {
        let column = |get: fn(&Preconditioning) -> f64| {
            let values: Vec<f32> = noise.iter().map(|at| get(at) as f32).collect();
            Tensor::from_data(TensorData::new(values, [noise.len(), 1, 1]), device)
        };
        let features: Vec<f32> = noise.iter().flat_map(|at| time_features(at.c_noise)).collect();
        Noise {
            c_in: column(|at| at.c_in),
            c_out: column(|at| at.c_out),
            c_skip: column(|at| at.c_skip),
            features: Tensor::from_data(TensorData::new(features, [noise.len(), TIME_FEATURES]), device),
        }
    }

    /// On the autodiff device, without gradients of their own.
    fn tracked(self) -> Self {
        Noise {
            c_in: self.c_in.autodiff(),
            c_out: self.c_out.autodiff(),
            c_skip: self.c_skip.autodiff(),
            features: self.features.autodiff(),
        }
    }
}

/// Rows of the flat table [V * d] over their length, [V, d].
fn codes(table: Tensor<1>, width: usize) -> Tensor<2> {
    let len = table.dims()[0];
    let rows = table.reshape([len / width, width]);
    let lengths = rows.clone().square().sum_dim(1).sqrt();
    rows / lengths
}

/// What a pass gives.
struct Outcome {
    h0: Tensor<3>,
    zhat: Tensor<3>,
    /// [R, V]
    logits: Tensor<2>,
}

/// `weights` as in [`crate::denoiser::shapes::of_replica`], each flat.
fn run(
    codes: Tensor<2>,
    context: Tensor<2, Int>,
    z: Tensor<3>,
    noise: Noise,
    weights: &[Tensor<1>],
    sizes: Sizes,
) -> Outcome {
    let Sizes { sequences: n, tokens: t, width: d, heads } = sizes;
    let count = (weights.len() - index::LAYERS) / LAYER_TENSORS;
    let hidden = linear(noise.features, &weights[index::TIME_0], &weights[index::TIME_0 + 1]);
    let activated = hidden.clone() * activation::sigmoid(hidden);
    let condition = linear(activated, &weights[index::TIME_2], &weights[index::TIME_2 + 1]);

    let positions = weights[index::POSITIONS].clone();
    let rows = positions.dims()[0] / d;
    let positions = positions.reshape([rows, d]).narrow(0, 0, t).unsqueeze::<3>();
    let noise_in = weights[index::NOISE_IN].clone().reshape([d, d]).transpose();
    let pushed = (z.clone() * noise.c_in).reshape([n * t, d]).matmul(noise_in).reshape([n, t, d]);
    let read = module::embedding(codes.clone(), context).mul_scalar((d as f64).sqrt());
    let h0 = read + pushed + positions + condition.reshape([n, 1, d]);

    let mut mask = layer::causal_mask(t, &h0.device());
    if h0.is_autodiff() && !mask.is_autodiff() {
        mask = mask.autodiff();
    }
    let mut hidden = h0.clone();
    for weights in weights[index::LAYERS..index::final_norm(count)].chunks_exact(LAYER_TENSORS) {
        hidden = layer::forward(hidden, weights, heads, mask.clone());
    }
    let norm = index::final_norm(count);
    let hidden = module::layer_norm(
        hidden.reshape([n * t, d]),
        weights[norm].clone(),
        Some(weights[norm + 1].clone()),
        EPSILON,
    );
    let zhat = hidden.reshape([n, t, d]) * noise.c_out + z * noise.c_skip;
    let scale = weights[index::logit_scale(count)].clone().reshape([1, 1]);
    let logits = zhat.clone().reshape([n * t, d]).matmul(codes.transpose()) * scale;
    Outcome { h0, zhat, logits }
}

/// `(h0, zhat, logits)`, flat [R * d], [R * d] and [R * V], of noisy codes z [R, d].
pub(crate) fn denoise(
    context: &[u32],
    z: Vec<f32>,
    noise: &[Preconditioning],
    parameters: &[BurnParameter],
    sizes: Sizes,
    device: &Device,
) -> (Tensor<3>, Tensor<3>, Tensor<2>) {
    let Sizes { sequences: n, tokens: t, width: d, .. } = sizes;
    let weights: Vec<_> = parameters.iter().map(BurnParameter::value).collect();
    let codes = codes(weights[index::TABLE].clone(), d);
    let z = Tensor::from_data(TensorData::new(z, [n, t, d]), device);
    let noise = Noise::new(noise, device);
    let outcome = run(codes, ids(context, [n, t], device), z, noise, &weights, sizes);
    (outcome.h0, outcome.zhat, outcome.logits)
}

/// Training pass: mean cross-entropy [N] of each sequence in nats; adds the gradients of `mean_n w_n * CE_n` to the
/// parameters'.
pub(crate) fn train(
    context: &[u32],
    targets: &[u32],
    sigma: &[f32],
    eps: Vec<f32>,
    parameters: &mut [BurnParameter],
    sizes: Sizes,
    device: &Device,
) -> Tensor<1> {
    let Sizes { sequences: n, tokens: t, width: d, .. } = sizes;
    let at: Vec<_> = sigma.iter().map(|&sigma| Preconditioning::at(f64::from(sigma))).collect();
    let leaves: Vec<_> = parameters.iter().map(leaf).collect();
    let codes = codes(leaves[index::TABLE].clone(), d);
    let spread: Vec<f32> =
        eps.chunks(t * d).zip(sigma).flat_map(|(e, s)| e.iter().map(move |e| e * s)).collect();
    let spread = Tensor::<3>::from_data(TensorData::new(spread, [n, t, d]), device).autodiff();
    let z = module::embedding(codes.clone(), ids(targets, [n, t], device)) + spread;
    let noise = Noise::new(&at, device).tracked();
    let outcome = run(codes, ids(context, [n, t], device), z, noise, &leaves, sizes);
    let chosen = ids(targets, [n * t, 1], device);
    let scores = activation::log_softmax(outcome.logits, 1).gather(1, chosen).neg();
    let scores = scores.reshape([n, t]).mean_dim(1).reshape([n]);
    let weights: Vec<f32> = at.iter().map(|at| (at.weight / n as f64) as f32).collect();
    let weights = Tensor::<1>::from_data(TensorData::new(weights, [n]), device).autodiff();
    let mut gradients = (scores.clone() * weights).sum().backward();
    for (leaf, parameter) in leaves.iter().zip(parameters) {
        if let Some(gradient) = leaf.grad_remove(&mut gradients) {
            parameter.accumulate(gradient);
        }
    }
    scores.inner()
}

/// `x w^T + b` with x [R, inputs], w flat [outputs * inputs] and b [outputs].
fn linear(x: Tensor<2>, w: &Tensor<1>, b: &Tensor<1>) -> Tensor<2> {
    let ([inputs], [outputs]) = ([x.dims()[1]], b.dims());
    let weight = w.clone().reshape([outputs, inputs]).transpose();
    x.matmul(weight) + b.clone().reshape([1, outputs])
}
