//! Final layer norm, LM head and cross-entropy.

use burn_tensor::{IndexingUpdateOp, Int, Tensor, module};

use super::layer::EPSILON;

/// Most logits to hold at once: vocabularies are large, and WebGPU limits the size of a buffer.
const LOGITS: usize = 1 << 24;

/// Final norm of the hidden states [N, T, d], as rows [R, d].
pub(crate) fn norm(hidden: Tensor<3>, weight: Tensor<1>, bias: Tensor<1>) -> Tensor<2> {
    let [n, t, d] = hidden.dims();
    module::layer_norm(hidden.reshape([n * t, d]), weight, Some(bias), EPSILON)
}

/// Logits [R, V] of the normed rows [R, d]; `table` is [V * d].
pub(crate) fn logits(normed: Tensor<2>, table: Tensor<1>) -> Tensor<2> {
    let width = normed.dims()[1];
    normed.matmul(rows(table, width).transpose())
}

/// Cross-entropy with its gradients.
pub(crate) struct CrossEntropy {
    /// Sum over rows in nats, [1].
    pub sum: Tensor<1>,
    /// For the normed rows [R, d] and the table [V * d]; None unless training.
    pub gradients: Option<(Tensor<2>, Tensor<1>)>,
}

/// Cross-entropy of LM head and softmax, some rows at a time, with the gradients of `scale * mean` in training.
///
/// By hand rather than by autodiff: `dlogits = softmax - onehot`, and nothing as large as all logits is kept.
/// No tensor here is on an autodiff device. `targets` is [R].
pub(crate) fn cross_entropy(
    normed: Tensor<2>,
    table: Tensor<1>,
    targets: Tensor<1, Int>,
    training: Option<f32>,
) -> CrossEntropy {
    let [count, width] = normed.dims();
    let table = rows(table, width);
    let vocabulary = table.dims()[0];
    let chunk = (LOGITS / vocabulary).clamp(1, count);
    let factor = training.map(|scale| f64::from(scale) / count as f64);
    let mut sums = Vec::new();
    let mut dnormed = Vec::new();
    let mut dtable: Option<Tensor<2>> = None;
    for start in (0..count).step_by(chunk) {
        let len = chunk.min(count - start);
        let hidden = normed.clone().narrow(0, start, len);
        let targets = targets.clone().narrow(0, start, len).reshape([len, 1]);
        let logits = hidden.clone().matmul(table.clone().transpose());
        let highest = logits.clone().max_dim(1);
        let shifted = logits - highest;
        let exponentials = shifted.clone().exp();
        let totals = exponentials.clone().sum_dim(1);
        sums.push((totals.clone().log() - shifted.gather(1, targets.clone())).sum());
        let Some(factor) = factor else { continue };
        let shares = exponentials * totals.recip().mul_scalar(factor);
        let hits = Tensor::full([len, 1], -factor, &shares.device());
        let dlogits = shares.scatter(1, targets, hits, IndexingUpdateOp::Add);
        let part = dlogits.clone().transpose().matmul(hidden);
        dtable = Some(match dtable.take() {
            Some(sum) => sum + part,
            None => part,
        });
        dnormed.push(dlogits.matmul(table.clone()));
    }
    let gradients = dtable.map(|dtable| (Tensor::cat(dnormed, 0), dtable.reshape([vocabulary * width])));
    CrossEntropy { sum: Tensor::cat(sums, 0).sum(), gradients }
}

fn rows(table: Tensor<1>, width: usize) -> Tensor<2> {
    let len = table.dims()[0];
    table.reshape([len / width, width])
}
