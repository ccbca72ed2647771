//! A layer over new tokens only: keys and values of the tokens before them are kept.

use super::{
    gelu,
    matmul::biased,
    norm, parallel,
    simd::{exp, max, sum, vectorised},
    thin::{add_product, mix, scores},
};
use crate::parameters::CpuParameter;

/// Attention over fewer numbers of keys than these, in all requests together, is not worth a second thread.
const WORTH_THREADS: usize = 1 << 15;

/// Keys and values of one request in one layer, both [h, P, d/h]; the first tokens of each head are filled.
pub(crate) struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl LayerCache {
    /// For `positions` tokens of `width` features.
    pub(crate) fn new(positions: usize, width: usize) -> Self {
        let empty = || vec![0.0; positions * width];
        LayerCache { keys: empty(), values: empty() }
    }
}

/// New tokens of one request.
pub(crate) struct Slot<'a> {
    /// Its cache in this layer.
    pub cache: &'a mut LayerCache,
    /// Tokens in the cache.
    pub past: usize,
    /// Rows of it in the batch, at least one; they fit the cache.
    pub rows: usize,
}

/// x [R, d] to y [R, d], R the rows of all slots in order; `parameters` as in
/// [`crate::gpt2::shapes::LAYER_SUFFIXES`]. The slots' caches get the keys and values of their rows.
pub(crate) fn forward(
    x: &[f32],
    parameters: &[CpuParameter],
    heads: usize,
    slots: &mut [Slot<'_>],
) -> Vec<f32> {
    let w = |index: usize| parameters[index].value();
    let d = w(0).len();
    let rows = x.len() / d;
    let normed = norm::normalise(x, &norm::statistics(x, d), w(0), w(1));
    let mut qkv = biased(None, w(3), rows);
    add_product(&mut qkv, &normed, w(2), d);
    let attended = attention(&qkv, d, heads, slots);
    let mut x1 = biased(Some(x), w(5), rows);
    add_product(&mut x1, &attended, w(4), d);

    let normed = norm::normalise(&x1, &norm::statistics(&x1, d), w(6), w(7));
    let mut h = vec![0.0; rows * 4 * d];
    add_product(&mut h, &normed, w(8), d);
    let activated = gelu::biased(&mut h, w(9));
    let mut y = biased(Some(&x1), w(11), rows);
    add_product(&mut y, &activated, w(10), 4 * d);
    y
}

/// One head of one request: new queries against all keys up to each.
struct Head<'a> {
    /// From the head's first query on; rows lie 3d apart.
    queries: &'a [f32],
    keys: &'a [f32],
    values: &'a [f32],
    past: usize,
    /// [rows, d/h].
    out: &'a mut [f32],
}

/// qkv [R, 3d] to [R, d].
fn attention(qkv: &[f32], d: usize, heads: usize, slots: &mut [Slot<'_>]) -> Vec<f32> {
    let size = d / heads;
    let mut first = 0;
    for slot in &mut *slots {
        remember(slot, &qkv[first * 3 * d..], d, size);
        first += slot.rows;
    }
    // By request, head and row; the rows get their order at the end.
    let mut by_head = vec![0.0; first * d];
    let (mut rest, mut first, mut keys) = (by_head.as_mut_slice(), 0, 0);
    let mut pieces = Vec::with_capacity(slots.len() * heads);
    for slot in &*slots {
        let positions = slot.cache.keys.len() / d;
        for head in 0..heads {
            let (out, after) = rest.split_at_mut(slot.rows * size);
            rest = after;
            let queries = &qkv[first * 3 * d + head * size..];
            let own = head * positions * size..(head + 1) * positions * size;
            let (keys, values) = (&slot.cache.keys[own.clone()], &slot.cache.values[own]);
            pieces.push(Head { queries, keys, values, past: slot.past, out });
        }
        first += slot.rows;
        keys += slot.rows * (slot.past + slot.rows) * d;
    }
    let work = |head| attend(head, d, size);
    if keys < WORTH_THREADS {
        pieces.into_iter().for_each(work);
    } else {
        parallel::each(pieces, work);
    }
    let mut out = vec![0.0; first * d];
    let mut first = 0;
    for slot in &*slots {
        for row in 0..slot.rows {
            for head in 0..heads {
                let from = (first * heads + head * slot.rows + row) * size;
                let to = (first + row) * d + head * size;
                out[to..to + size].copy_from_slice(&by_head[from..from + size]);
            }
        }
        first += slot.rows;
    }
    out
}

/// Puts the keys and values of the slot's rows behind those before them.
fn remember(slot: &mut Slot<'_>, qkv: &[f32], d: usize, size: usize) {
    let positions = slot.cache.keys.len() / d;
    for (row, qkv) in qkv.chunks_exact(3 * d).take(slot.rows).enumerate() {
        for head in 0..d / size {
            let to = (head * positions + slot.past + row) * size;
            let from = d + head * size;
            slot.cache.keys[to..to + size].copy_from_slice(&qkv[from..from + size]);
            slot.cache.values[to..to + size].copy_from_slice(&qkv[from + d..from + d + size]);
        }
    }
}

fn attend(head: Head<'_>, d: usize, size: usize) {
    let Head { queries, keys, values, past, out } = head;
    let scale = 1.0 / (size as f32).sqrt();
    let mut weights = vec![0.0; past + out.len() / size];
    for (row, out) in out.chunks_exact_mut(size).enumerate() {
        let seen = past + row + 1;
        let weights = &mut weights[..seen];
        scores(weights, &queries[row * 3 * d..][..size], &keys[..seen * size]);
        softmax(weights, scale);
        mix(out, weights, &values[..seen * size]);
    }
}

vectorised! {
    /// Softmax of `scale * scores`, in place.
    fn softmax(scores: &mut [f32], scale: f32) {
        let highest = max(scores);
        for score in scores.iter_mut() {
            *score = exp((*score - highest) * scale);
        }
        let inverse = 1.0 / sum(scores);
        for weight in scores {
            *weight *= inverse;
        }
    }
}
