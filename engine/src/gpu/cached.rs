//! A layer over new tokens only: keys and values of the tokens before them are kept.

use burn_tensor::Tensor;

use super::layer;

/// Keys and values of one request in one layer, both [1, h, tokens, d/h]; None before the first token. There may be
/// more tokens than the request still has: the next pass leaves them out.
#[derive(Clone, Default)]
pub(crate) struct LayerCache(Option<[Tensor<4>; 2]>);

/// New tokens of one request.
pub(crate) struct Slot<'a> {
    /// Its cache in this layer.
    pub cache: &'a mut LayerCache,
    /// Tokens in the cache.
    pub past: usize,
    /// Rows of it in the batch, at least one.
    pub rows: usize,
}

/// x [1, R, d] to y [1, R, d], R the rows of all slots in order; `w` as in [`layer::forward`]. The slots' caches get
/// the keys and values of their rows.
pub(crate) fn forward(x: Tensor<3>, w: &[Tensor<1>], heads: usize, slots: &mut [Slot<'_>]) -> Tensor<3> {
    layer::with(x, w, |qkv| {
        let mut first = 0;
        let mut attended = Vec::with_capacity(slots.len());
        for Slot { cache, past, rows } in slots {
            let own = qkv.clone().narrow(0, first, *rows);
            first += *rows;
            attended.push(attention(own, cache, *past, heads));
        }
        Tensor::cat(attended, 0)
    })
}

fn attention(qkv: Tensor<2>, cache: &mut LayerCache, past: usize, heads: usize) -> Tensor<2> {
    let rows = qkv.dims()[0];
    let [q, k, v] = layer::split(qkv, [1, rows], heads);
    let join = |before: Tensor<4>, new| Tensor::cat(vec![before.narrow(2, 0, past), new], 2);
    let (k, v) = match cache.0.take() {
        Some([keys, values]) if past > 0 => (join(keys, k), join(values, v)),
        _ => (k, v),
    };
    cache.0 = Some([k.clone(), v.clone()]);
    // A single token sees all that is there.
    let mask = (rows > 1).then(|| layer::mask_after(past, rows, &k.device()));
    layer::attend(q, k, v, mask)
}
