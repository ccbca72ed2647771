//! Causal attention, tile by tile, without ever holding the T x T weights of all heads.
//!
//! Per head, with q, k, v [T, d/h]: `softmax(q k^T / sqrt(d/h), keys up to the query) v`. The forward pass
//! keeps the log of each row's sum of exponentials; the backward pass computes the weights again from it
//! (as FlashAttention does, Dao et al., <https://arxiv.org/abs/2205.14135>).

use super::{
    matmul::{Into, Matrix, multiply},
    parallel,
    simd::{exp, max, sum, sum_of, vectorised},
};
use crate::sizes::Sizes;

/// Queries per tile. Keys above the tile's diagonal are skipped, so small tiles save work, large ones make
/// better products.
const TILE: usize = 64;

/// What the backward pass needs beside q, k, v and the output.
pub(crate) struct Saved {
    /// ln(sum of exp(score)) per head and query, [N, h, T].
    log_sums: Vec<f32>,
}

/// `qkv` is [R, 3d]; the output is [R, d], heads side by side.
pub(crate) fn forward(qkv: &[f32], sizes: Sizes) -> (Vec<f32>, Saved) {
    let Sizes { sequences, tokens, width, heads } = sizes;
    let size = width / heads;
    let mut log_sums = vec![0.0; sequences * heads * tokens];
    let mut by_head = vec![0.0; sequences * heads * tokens * size];
    let pieces: Vec<_> =
        by_head.chunks_mut(tokens * size).zip(log_sums.chunks_mut(tokens)).enumerate().collect();
    parallel::each(pieces, |(index, (out, log_sums))| {
        forward_head(Head::new(qkv, index, sizes), out, log_sums);
    });
    let mut out = vec![0.0; sizes.rows() * width];
    interleave(&by_head, 1, sizes, &mut out);
    (out, Saved { log_sums })
}

/// Gradient of `qkv` [R, 3d] from that of the output, `dout` [R, d].
pub(crate) fn backward(qkv: &[f32], out: &[f32], dout: &[f32], saved: &Saved, sizes: Sizes) -> Vec<f32> {
    let Sizes { sequences, tokens, width, heads } = sizes;
    let size = width / heads;
    let mut by_head = vec![0.0; sequences * heads * 3 * tokens * size];
    let pieces: Vec<_> =
        by_head.chunks_mut(3 * tokens * size).zip(saved.log_sums.chunks(tokens)).enumerate().collect();
    parallel::each(pieces, |(index, (gradients, log_sums))| {
        let start = (index / heads) * tokens * width + (index % heads) * size;
        let head = Head::new(qkv, index, sizes);
        backward_head(head, &out[start..], &dout[start..], log_sums, gradients);
    });
    let mut dqkv = vec![0.0; sizes.rows() * 3 * width];
    interleave(&by_head, 3, sizes, &mut dqkv);
    dqkv
}

/// One head of one sequence.
#[derive(Clone, Copy)]
struct Head<'a> {
    /// From its first query's first number on; rows lie 3d apart, k and v lie d and 2d further.
    qkv: &'a [f32],
    tokens: usize,
    width: usize,
    size: usize,
    scale: f32,
}

impl<'a> Head<'a> {
    fn new(qkv: &'a [f32], index: usize, sizes: Sizes) -> Self {
        let Sizes { tokens, width, heads, .. } = sizes;
        let size = width / heads;
        let start = (index / heads) * tokens * 3 * width + (index % heads) * size;
        Head { qkv: &qkv[start..], tokens, width, size, scale: 1.0 / (size as f32).sqrt() }
    }

    /// Rows `start..start + rows` of q (0), k (1) or v (2).
    fn part(&self, which: usize, start: usize, rows: usize) -> Matrix<'a> {
        let values = &self.qkv[which * self.width + start * 3 * self.width..];
        Matrix::strided(values, rows, self.size, 3 * self.width)
    }

    /// Scores of the tile of queries from `start`: [rows, keys], scaled, not masked.
    fn scores(&self, start: usize, scores: &mut [f32]) -> (usize, usize) {
        let rows = TILE.min(self.tokens - start);
        let keys = start + rows;
        let (q, k) = (self.part(0, start, rows), self.part(1, 0, keys));
        multiply(scores, keys, Into::Replace, self.scale, q, k.transposed(), false);
        (rows, keys)
    }
}

fn forward_head(head: Head<'_>, out: &mut [f32], log_sums: &mut [f32]) {
    let mut scores = vec![0.0; TILE.min(head.tokens) * head.tokens];
    for start in (0..head.tokens).step_by(TILE) {
        let (rows, keys) = head.scores(start, &mut scores);
        let weights = &mut scores[..rows * keys];
        softmax_rows(weights, keys, start, &mut log_sums[start..start + rows]);
        let out = &mut out[start * head.size..];
        let weights = Matrix::new(weights, rows, keys);
        multiply(out, head.size, Into::Replace, 1.0, weights, head.part(2, 0, keys), false);
    }
}

/// `out` and `dout` start at the head's first number; their rows lie d apart. `gradients` are dq, dk, dv, one
/// after the other.
fn backward_head(head: Head<'_>, out: &[f32], dout: &[f32], log_sums: &[f32], gradients: &mut [f32]) {
    let Head { tokens, width, size, .. } = head;
    let (dq, dkv) = gradients.split_at_mut(tokens * size);
    let (dk, dv) = dkv.split_at_mut(tokens * size);
    let mut weights = vec![0.0; TILE.min(tokens) * tokens];
    let mut dscores = weights.clone();
    for start in (0..tokens).step_by(TILE) {
        let (rows, keys) = head.scores(start, &mut weights);
        let weights = &mut weights[..rows * keys];
        weights_again(weights, keys, start, &log_sums[start..start + rows]);
        let dout_tile = Matrix::strided(&dout[start * width..], rows, size, width);
        let weights_matrix = Matrix::new(weights, rows, keys);
        multiply(dv, size, Into::Add, 1.0, weights_matrix.transposed(), dout_tile, false);
        let dscores = &mut dscores[..rows * keys];
        let values = head.part(2, 0, keys).transposed();
        multiply(dscores, keys, Into::Replace, 1.0, dout_tile, values, false);
        score_gradients(dscores, weights, keys, &out[start * width..], &dout[start * width..], width, size);
        let dscores = Matrix::new(dscores, rows, keys);
        multiply(
            &mut dq[start * size..],
            size,
            Into::Replace,
            head.scale,
            dscores,
            head.part(1, 0, keys),
            false,
        );
        let queries = head.part(0, start, rows);
        multiply(dk, size, Into::Add, head.scale, dscores.transposed(), queries, false);
    }
}

/// From one block per head, [N, h, parts, T, d/h], to rows [R, parts * d].
fn interleave(by_head: &[f32], parts: usize, sizes: Sizes, out: &mut [f32]) {
    let Sizes { tokens, width, heads, .. } = sizes;
    let size = width / heads;
    parallel::rows(out, parts * width, |first, out| {
        for (row, out) in (first..).zip(out.chunks_exact_mut(parts * width)) {
            let (sequence, token) = (row / tokens, row % tokens);
            for part in 0..parts {
                for head in 0..heads {
                    let block = (sequence * heads + head) * parts + part;
                    let from = (block * tokens + token) * size;
                    let to = part * width + head * size;
                    out[to..to + size].copy_from_slice(&by_head[from..from + size]);
                }
            }
        }
    });
}

vectorised! {
    /// Scores of the queries from `start` to weights; keys after a query get 0.
    fn softmax_rows(scores: &mut [f32], keys: usize, start: usize, log_sums: &mut [f32]) {
        for (row, (scores, log_sum)) in scores.chunks_exact_mut(keys).zip(log_sums).enumerate() {
            let (seen, unseen) = scores.split_at_mut(start + row + 1);
            let highest = max(seen);
            for score in seen.iter_mut() {
                *score = exp(*score - highest);
            }
            let total = sum(seen);
            *log_sum = highest + libm::logf(total);
            let inverse = 1.0 / total;
            for weight in seen {
                *weight *= inverse;
            }
            unseen.fill(0.0);
        }
    }

    /// The same weights, from the saved sums.
    fn weights_again(scores: &mut [f32], keys: usize, start: usize, log_sums: &[f32]) {
        for (row, (scores, log_sum)) in scores.chunks_exact_mut(keys).zip(log_sums).enumerate() {
            let (seen, unseen) = scores.split_at_mut(start + row + 1);
            for score in seen {
                *score = exp(*score - log_sum);
            }
            unseen.fill(0.0);
        }
    }

    /// Gradients of the weights to those of the scores, in place: `w (dw - sum(w dw))`, where the sum equals
    /// that of `out dout` over the head.
    fn score_gradients(dscores: &mut [f32], weights: &[f32], keys: usize, out: &[f32], dout: &[f32], width: usize, size: usize) {
        let rows = dscores.chunks_exact_mut(keys).zip(weights.chunks_exact(keys));
        for (row, (dscores, weights)) in rows.enumerate() {
            let range = row * width..row * width + size;
            let (out, dout) = (&out[range.clone()], &dout[range]);
            let common = sum_of(size, |i| out[i] * dout[i]);
            for (d, weight) in dscores.iter_mut().zip(weights) {
                *d = weight * (*d - common);
            }
        }
    }
}
