//! A block denoiser on the processor: forward, loss and backward. Formulas are at [`crate::denoiser`].

use super::time_features;
use crate::{
    cpu::{
        head, layer,
        matmul::{Into, Matrix, multiply, product, sum_rows},
        norm::{self, Statistics},
        parallel,
    },
    denoiser::{
        noise::Preconditioning,
        shapes::{TIME_FEATURES, index},
    },
    gpt2::shapes::LAYER_TENSORS,
    parameters::CpuParameter,
    sizes::Sizes,
};

/// Rows of the table divided by their length.
pub(crate) struct Codes {
    /// [V, d]
    pub rows: Vec<f32>,
    /// 1 / length of each row of the table, [V].
    inverse: Vec<f32>,
}

impl Codes {
    pub(crate) fn new(table: &[f32], width: usize) -> Self {
        let inverse: Vec<f32> = table
            .chunks_exact(width)
            .map(|row| 1.0 / row.iter().map(|x| x * x).sum::<f32>().sqrt())
            .collect();
        let mut rows = table.to_vec();
        for (row, inverse) in rows.chunks_exact_mut(width).zip(&inverse) {
            row.iter_mut().for_each(|x| *x *= inverse);
        }
        Codes { rows, inverse }
    }

    fn row(&self, token: u32, width: usize) -> &[f32] {
        &self.rows[token as usize * width..][..width]
    }

    /// `z = codes[targets] + sigma * eps`, one sigma per sequence; [R, d].
    pub(crate) fn noised(&self, targets: &[u32], sigma: &[f32], eps: &[f32], sizes: Sizes) -> Vec<f32> {
        let d = sizes.width;
        let mut z = eps.to_vec();
        for (row, (z, &target)) in z.chunks_exact_mut(d).zip(targets).enumerate() {
            let sigma = sigma[row / sizes.tokens];
            for (z, code) in z.iter_mut().zip(self.row(target, d)) {
                *z = code + sigma * *z;
            }
        }
        z
    }

    /// Adds to the table's gradient what these gradients of the codes [V, d] come to: the part across each row,
    /// over the row's length.
    fn backward(&self, dcodes: &[f32], dtable: &mut [f32], width: usize) {
        let rows = self.rows.chunks_exact(width).zip(dcodes.chunks_exact(width));
        for ((code, dcode), (dtable, inverse)) in rows.zip(dtable.chunks_exact_mut(width).zip(&self.inverse))
        {
            let along: f32 = code.iter().zip(dcode).map(|(a, b)| a * b).sum();
            for ((dtable, code), dcode) in dtable.iter_mut().zip(code).zip(dcode) {
                *dtable += (dcode - along * code) * inverse;
            }
        }
    }
}

/// What the two linear maps of the time conditioning need for their backward pass.
struct Time {
    /// [N, 256]
    features: Vec<f32>,
    /// Before SiLU, [N, d].
    hidden: Vec<f32>,
    /// After it.
    activated: Vec<f32>,
}

/// What enters the layers.
pub(crate) struct Entry {
    /// [R, d]
    pub h0: Vec<f32>,
    /// c_in * z, [R, d].
    scaled: Vec<f32>,
    time: Time,
}

/// `h0 = sqrt(d) codes[x] + (c_in z) Wz^T + P[0:T] + time(c_noise)`.
pub(crate) fn enter(
    codes: &Codes,
    context: &[u32],
    z: &[f32],
    noise: &[Preconditioning],
    parameters: &[CpuParameter],
    sizes: Sizes,
) -> Entry {
    let (rows, d, tokens) = (sizes.rows(), sizes.width, sizes.tokens);
    let value = |index: usize| parameters[index].value();
    let features: Vec<f32> = noise.iter().flat_map(|at| time_features(at.c_noise)).collect();
    let n = sizes.sequences;
    let hidden = linear(&features, value(index::TIME_0), value(index::TIME_0 + 1), n);
    let activated: Vec<f32> = hidden.iter().map(|&a| a * sigmoid(a)).collect();
    let condition = linear(&activated, value(index::TIME_2), value(index::TIME_2 + 1), n);

    let mut scaled = z.to_vec();
    for (sequence, at) in scaled.chunks_exact_mut(tokens * d).zip(noise) {
        let c_in = at.c_in as f32;
        sequence.iter_mut().for_each(|z| *z *= c_in);
    }
    let mut h0 = vec![0.0; rows * d];
    let (positions, root) = (value(index::POSITIONS), libm::sqrt(d as f64) as f32);
    parallel::rows(&mut h0, d, |first, out| {
        for (row, out) in (first..).zip(out.chunks_exact_mut(d)) {
            let code = codes.row(context[row], d);
            let position = &positions[(row % tokens) * d..][..d];
            let condition = &condition[(row / tokens) * d..][..d];
            for (i, out) in out.iter_mut().enumerate() {
                *out = root * code[i] + position[i] + condition[i];
            }
        }
    });
    let weight = Matrix::new(value(index::NOISE_IN), d, d).transposed();
    product(&mut h0, Into::Add, Matrix::new(&scaled, rows, d), weight);
    Entry { h0, scaled, time: Time { features, hidden, activated } }
}

/// A forward pass up to zhat.
struct Pass {
    entry: Entry,
    layers: Vec<layer::Saved>,
    /// What leaves the last layer, [R, d].
    last: Vec<f32>,
    statistics: Statistics,
    /// [R, d]
    zhat: Vec<f32>,
}

fn forward(
    codes: &Codes,
    context: &[u32],
    z: &[f32],
    noise: &[Preconditioning],
    parameters: &[CpuParameter],
    sizes: Sizes,
    keep: bool,
) -> Pass {
    let d = sizes.width;
    let mut entry = enter(codes, context, z, noise, parameters, sizes);
    let count = layer_count(parameters);
    let mut hidden = std::mem::take(&mut entry.h0);
    let mut layers = Vec::new();
    for number in 0..count {
        let first = index::LAYERS + LAYER_TENSORS * number;
        let (next, saved) = layer::forward(hidden, &parameters[first..first + LAYER_TENSORS], sizes);
        hidden = next;
        if keep {
            layers.push(saved);
        }
    }
    let weights = index::final_norm(count);
    let statistics = norm::statistics(&hidden, d);
    let mut zhat =
        norm::normalise(&hidden, &statistics, parameters[weights].value(), parameters[weights + 1].value());
    let sequences = zhat.chunks_exact_mut(sizes.tokens * d).zip(z.chunks_exact(sizes.tokens * d));
    for ((zhat, z), at) in sequences.zip(noise) {
        let (c_out, c_skip) = (at.c_out as f32, at.c_skip as f32);
        for (zhat, z) in zhat.iter_mut().zip(z) {
            *zhat = c_out * *zhat + c_skip * z;
        }
    }
    Pass { entry, layers, last: hidden, statistics, zhat }
}

/// `(zhat [R, d], logits [R, V])` of noisy codes z [R, d].
pub(crate) fn denoise(
    context: &[u32],
    z: &[f32],
    noise: &[Preconditioning],
    parameters: &[CpuParameter],
    sizes: Sizes,
) -> (Vec<f32>, Vec<f32>) {
    let d = sizes.width;
    let codes = Codes::new(parameters[index::TABLE].value(), d);
    let pass = forward(&codes, context, z, noise, parameters, sizes, false);
    let vocabulary = codes.inverse.len();
    let mut logits = vec![0.0; sizes.rows() * vocabulary];
    score(&mut logits, &pass.zhat, &codes, scale(parameters), d);
    (pass.zhat, logits)
}

/// `logits = scale * zhat codes^T`.
fn score(logits: &mut [f32], zhat: &[f32], codes: &Codes, scale: f32, d: usize) {
    let vocabulary = codes.inverse.len();
    let table = Matrix::new(&codes.rows, vocabulary, d).transposed();
    multiply(logits, vocabulary, Into::Replace, scale, Matrix::new(zhat, zhat.len() / d, d), table, true);
}

/// Training pass: mean cross-entropy of each sequence in nats; adds the gradients of
/// `mean_n w_n * CE_n` to the parameters'.
pub(crate) fn train(
    context: &[u32],
    targets: &[u32],
    sigma: &[f32],
    eps: &[f32],
    parameters: &mut [CpuParameter],
    sizes: Sizes,
) -> Vec<f32> {
    let (rows, d, tokens) = (sizes.rows(), sizes.width, sizes.tokens);
    let noise: Vec<_> = sigma.iter().map(|&sigma| Preconditioning::at(f64::from(sigma))).collect();
    let codes = Codes::new(parameters[index::TABLE].value(), d);
    let z = codes.noised(targets, sigma, eps, sizes);
    let pass = forward(&codes, context, &z, &noise, parameters, sizes, true);
    let scale = scale(parameters);
    let vocabulary = codes.inverse.len();

    // Head: some sequences' logits at a time.
    let mut dcodes = vec![0.0; codes.rows.len()];
    let mut dzhat = vec![0.0; rows * d];
    let mut scores = Vec::with_capacity(sizes.sequences);
    let chunk = (head::LOGITS / (vocabulary * tokens)).clamp(1, sizes.sequences);
    let mut logits = vec![0.0; chunk * tokens * vocabulary];
    for first in (0..sizes.sequences).step_by(chunk) {
        let count = chunk.min(sizes.sequences - first);
        let logits = &mut logits[..count * tokens * vocabulary];
        let zhat = &pass.zhat[first * tokens * d..(first + count) * tokens * d];
        score(logits, zhat, &codes, scale, d);
        for (offset, logits) in logits.chunks_exact_mut(tokens * vocabulary).enumerate() {
            let n = first + offset;
            let factor = noise[n].weight as f32 / rows as f32;
            let total = head::cross_entropy(logits, &targets[n * tokens..(n + 1) * tokens], factor);
            scores.push((total / tokens as f64) as f32);
        }
        let dlogits = Matrix::new(logits, count * tokens, vocabulary);
        let zhat = Matrix::new(zhat, count * tokens, d);
        multiply(&mut dcodes, d, Into::Add, scale, dlogits.transposed(), zhat, true);
        let target = &mut dzhat[first * tokens * d..(first + count) * tokens * d];
        product(target, Into::Replace, dlogits, Matrix::new(&codes.rows, vocabulary, d));
    }
    // Up to here dzhat lacks the factor `scale`, and so gives the gradient of the scale itself.
    let dscale: f64 = dzhat.iter().zip(&pass.zhat).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    dzhat.iter_mut().for_each(|x| *x *= scale);
    let count = layer_count(parameters);
    parameters[index::logit_scale(count)].split().1[0] += dscale as f32;

    back(pass, dzhat, dcodes, &codes, context, targets, &noise, parameters, sizes);
    scores
}

/// From the gradient of zhat to all parameters.
#[allow(clippy::too_many_arguments, reason = "one step of one pass, called once")]
fn back(
    pass: Pass,
    dzhat: Vec<f32>,
    mut dcodes: Vec<f32>,
    codes: &Codes,
    context: &[u32],
    targets: &[u32],
    noise: &[Preconditioning],
    parameters: &mut [CpuParameter],
    sizes: Sizes,
) {
    let (rows, d, tokens) = (sizes.rows(), sizes.width, sizes.tokens);
    let count = layer_count(parameters);
    // zhat = c_out h + c_skip z
    let (mut dh, mut dz) = (dzhat.clone(), dzhat);
    let sequences = dh.chunks_exact_mut(tokens * d).zip(dz.chunks_exact_mut(tokens * d));
    for ((dh, dz), at) in sequences.zip(noise) {
        let (c_out, c_skip) = (at.c_out as f32, at.c_skip as f32);
        dh.iter_mut().for_each(|x| *x *= c_out);
        dz.iter_mut().for_each(|x| *x *= c_skip);
    }
    let mut gradient = vec![0.0; rows * d];
    layer::norm_backward(
        &dh,
        &pass.last,
        &pass.statistics,
        &mut gradient,
        parameters,
        index::final_norm(count),
    );
    for (number, saved) in pass.layers.into_iter().enumerate().rev() {
        let first = index::LAYERS + LAYER_TENSORS * number;
        gradient = layer::backward(gradient, saved, &mut parameters[first..first + LAYER_TENSORS], sizes);
    }
    let dh0 = gradient;

    // (c_in z) Wz^T
    let Entry { scaled, time, .. } = pass.entry;
    let dh0_matrix = Matrix::new(&dh0, rows, d);
    let (weight, dweight) = parameters[index::NOISE_IN].split();
    product(dweight, Into::Add, dh0_matrix.transposed(), Matrix::new(&scaled, rows, d));
    let mut dscaled = vec![0.0; rows * d];
    product(&mut dscaled, Into::Replace, dh0_matrix, Matrix::new(weight, d, d));
    let sequences = dz.chunks_exact_mut(tokens * d).zip(dscaled.chunks_exact(tokens * d));
    for ((dz, dscaled), at) in sequences.zip(noise) {
        let c_in = at.c_in as f32;
        dz.iter_mut().zip(dscaled).for_each(|(dz, dscaled)| *dz += c_in * dscaled);
    }

    // Tables: sqrt(d) codes[x], z = codes[y] + ..., and P.
    let root = libm::sqrt(d as f64) as f32;
    let (_, dpositions) = parameters[index::POSITIONS].split();
    for (row, (dh0, dz)) in dh0.chunks_exact(d).zip(dz.chunks_exact(d)).enumerate() {
        let read = &mut dcodes[context[row] as usize * d..][..d];
        read.iter_mut().zip(dh0).for_each(|(code, dh0)| *code += root * dh0);
        let meant = &mut dcodes[targets[row] as usize * d..][..d];
        meant.iter_mut().zip(dz).for_each(|(code, dz)| *code += dz);
        let position = &mut dpositions[(row % tokens) * d..][..d];
        position.iter_mut().zip(dh0).for_each(|(position, dh0)| *position += dh0);
    }
    codes.backward(&dcodes, parameters[index::TABLE].split().1, d);

    // time(c_noise), the same at all positions of a sequence
    let mut dcondition = vec![0.0; sizes.sequences * d];
    for (dcondition, dh0) in dcondition.chunks_exact_mut(d).zip(dh0.chunks_exact(tokens * d)) {
        sum_rows(dcondition, dh0);
    }
    let mut dhidden = linear_backward(&dcondition, &time.activated, parameters, index::TIME_2, d);
    for (gradient, &a) in dhidden.iter_mut().zip(&time.hidden) {
        let s = sigmoid(a);
        *gradient *= s * (1.0 + a * (1.0 - s));
    }
    linear_backward(&dhidden, &time.features, parameters, index::TIME_0, TIME_FEATURES);
}

fn layer_count(parameters: &[CpuParameter]) -> usize {
    (parameters.len() - index::LAYERS) / LAYER_TENSORS
}

fn scale(parameters: &[CpuParameter]) -> f32 {
    parameters[index::logit_scale(layer_count(parameters))].value()[0]
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + libm::expf(-x))
}

/// `x w^T + b` with w [outputs, inputs].
fn linear(x: &[f32], w: &[f32], b: &[f32], rows: usize) -> Vec<f32> {
    let (outputs, inputs) = (b.len(), w.len() / b.len());
    let mut y: Vec<f32> = b.iter().copied().cycle().take(rows * outputs).collect();
    let weight = Matrix::new(w, outputs, inputs).transposed();
    product(&mut y, Into::Add, Matrix::new(x, rows, inputs), weight);
    y
}

/// Backward of [`linear`] whose weight is `parameters[index]` and whose bias is the next one; gives dx.
fn linear_backward(
    dy: &[f32],
    x: &[f32],
    parameters: &mut [CpuParameter],
    index: usize,
    inputs: usize,
) -> Vec<f32> {
    let rows = x.len() / inputs;
    let outputs = dy.len() / rows;
    let dy_matrix = Matrix::new(dy, rows, outputs);
    let (weight, dweight) = parameters[index].split();
    product(dweight, Into::Add, dy_matrix.transposed(), Matrix::new(x, rows, inputs));
    let mut dx = vec![0.0; rows * inputs];
    product(&mut dx, Into::Replace, dy_matrix, Matrix::new(weight, outputs, inputs));
    sum_rows(parameters[index + 1].split().1, dy);
    dx
}
