//! Final layer norm, LM head and cross-entropy.

use super::{
    layer::norm_backward,
    matmul::{Into, Matrix, product},
    norm, parallel,
    simd::{exp, max, sum, vectorised},
    thin,
};
use crate::{parameters::CpuParameter, sizes::Sizes};

/// Most logits to hold at once. Vocabularies are large; logits of a whole micro-batch can outweigh the model.
pub(crate) const LOGITS: usize = 1 << 22;

/// Mean cross-entropy of the hidden states x [R, d], in nats; in training with the gradient of
/// `scale * mean` with respect to x. `norm` has the final norm's weight and bias.
pub(crate) fn loss(
    x: &[f32],
    targets: &[u32],
    training: Option<f32>,
    norm: &mut [CpuParameter],
    table: &mut CpuParameter,
    sizes: Sizes,
) -> (f32, Option<Vec<f32>>) {
    let (rows, d) = (sizes.rows(), sizes.width);
    let statistics = norm::statistics(x, d);
    let normed = norm::normalise(x, &statistics, norm[0].value(), norm[1].value());
    let vocabulary = table.value().len() / d;
    let chunk = (LOGITS / vocabulary).clamp(1, rows);
    let mut logits = vec![0.0; chunk * vocabulary];
    let mut dnormed = vec![0.0; if training.is_some() { rows * d } else { 0 }];
    let mut total = 0.0;
    for start in (0..rows).step_by(chunk) {
        let count = chunk.min(rows - start);
        let logits = &mut logits[..count * vocabulary];
        let hidden = Matrix::new(&normed[start * d..], count, d);
        let targets = &targets[start..start + count];
        product(logits, Into::Replace, hidden, Matrix::new(table.value(), vocabulary, d).transposed());
        let factor = training.map_or(0.0, |scale| scale / rows as f32);
        total += cross_entropy(logits, targets, factor);
        if training.is_some() {
            let dlogits = Matrix::new(logits, count, vocabulary);
            let (table, dtable) = table.split();
            product(dtable, Into::Add, dlogits.transposed(), hidden);
            let target = &mut dnormed[start * d..(start + count) * d];
            product(target, Into::Replace, dlogits, Matrix::new(table, vocabulary, d));
        }
    }
    let mean = (total / rows as f64) as f32;
    if training.is_none() {
        return (mean, None);
    }
    let mut dx = vec![0.0; rows * d];
    norm_backward(&dnormed, x, &statistics, &mut dx, norm, 0);
    (mean, Some(dx))
}

/// Final norm and logits [R, V] of the hidden states x [R, d].
pub(crate) fn logits(x: &[f32], norm: &[CpuParameter], table: &CpuParameter, width: usize) -> Vec<f32> {
    let rows = x.len() / width;
    let normed = norm::normalise(x, &norm::statistics(x, width), norm[0].value(), norm[1].value());
    let vocabulary = table.value().len() / width;
    let mut logits = vec![0.0; rows * vocabulary];
    let weight = Matrix::new(table.value(), vocabulary, width).transposed();
    product(&mut logits, Into::Replace, Matrix::new(&normed, rows, width), weight);
    logits
}

/// The same for few rows, reading the table once.
pub(crate) fn thin_logits(x: &[f32], norm: &[CpuParameter], table: &CpuParameter, width: usize) -> Vec<f32> {
    let normed = norm::normalise(x, &norm::statistics(x, width), norm[0].value(), norm[1].value());
    let mut logits = vec![0.0; x.len() / width * (table.value().len() / width)];
    thin::dots(&mut logits, &normed, table.value(), width);
    logits
}

/// Sum of the rows' cross-entropies; turns the logits into `factor * (softmax - onehot(target))`.
pub(crate) fn cross_entropy(logits: &mut [f32], targets: &[u32], factor: f32) -> f64 {
    let vocabulary = logits.len() / targets.len();
    let grain = parallel::grain(targets.len(), vocabulary);
    let pieces: Vec<_> = logits.chunks_mut(grain * vocabulary).zip(targets.chunks(grain)).collect();
    parallel::map(pieces, |(logits, targets)| cross_entropy_rows(logits, targets, factor)).into_iter().sum()
}

vectorised! {
    fn cross_entropy_rows(logits: &mut [f32], targets: &[u32], factor: f32) -> f64 {
        let mut total = 0.0;
        let vocabulary = logits.len() / targets.len();
        for (row, &target) in logits.chunks_exact_mut(vocabulary).zip(targets) {
            let highest = max(row);
            let wanted = row[target as usize] - highest;
            for logit in row.iter_mut() {
                *logit = exp(*logit - highest);
            }
            let sum = sum(row);
            total += f64::from(libm::logf(sum) - wanted);
            let share = factor / sum;
            for weight in row.iter_mut() {
                *weight *= share;
            }
            row[target as usize] -= factor;
        }
        total
    }
}
