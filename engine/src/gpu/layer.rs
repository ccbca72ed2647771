//! One layer: `x1 = x + proj(attention(ln_1(x)))`, `y = x1 + mlp(ln_2(x1))`.

use burn_tensor::{Tensor, TensorData, activation, module};

pub(crate) const EPSILON: f64 = 1e-5;

/// x [N, T, d] to y [N, T, d]. `w` are the twelve parameters of [`crate::gpt2::shapes::LAYER_SUFFIXES`]; `mask` is
/// [`causal_mask`].
pub(crate) fn forward(x: Tensor<3>, w: &[Tensor<1>], heads: usize, mask: Tensor<4>) -> Tensor<3> {
    let [n, t, _] = x.dims();
    with(x, w, |qkv| attention(qkv, [n, t], heads, mask))
}

/// A layer whose attention, qkv [R, 3d] to [R, d], is given.
pub(crate) fn with(
    x: Tensor<3>,
    w: &[Tensor<1>],
    attention: impl FnOnce(Tensor<2>) -> Tensor<2>,
) -> Tensor<3> {
    let [n, t, d] = x.dims();
    let x = x.reshape([n * t, d]);
    let normed = module::layer_norm(x.clone(), w[0].clone(), Some(w[1].clone()), EPSILON);
    let attended = attention(linear(normed, &w[2], &w[3]));
    let x1 = x + linear(attended, &w[4], &w[5]);
    let normed = module::layer_norm(x1.clone(), w[6].clone(), Some(w[7].clone()), EPSILON);
    let h = gelu(linear(normed, &w[8], &w[9]));
    let y = x1 + linear(h, &w[10], &w[11]);
    y.reshape([n, t, d])
}

/// [1, 1, T, T] to add to scores: 0 up to the diagonal, -1e9 above. Not -inf: WGSL does not promise infinity.
pub(crate) fn causal_mask(tokens: usize, device: &burn_tensor::Device) -> Tensor<4> {
    mask_after(0, tokens, device)
}

/// The same for the last `tokens` of `past + tokens`: [1, 1, tokens, past + tokens].
pub(crate) fn mask_after(past: usize, tokens: usize, device: &burn_tensor::Device) -> Tensor<4> {
    let keys = past + tokens;
    let value = |index: usize| if index % keys > past + index / keys { -1e9 } else { 0.0 };
    let values: Vec<f32> = (0..tokens * keys).map(value).collect();
    Tensor::from_data(TensorData::new(values, [1, 1, tokens, keys]), device)
}

/// `x w + b` with x [R, inputs], w flat [inputs * outputs] and b [outputs].
fn linear(x: Tensor<2>, w: &Tensor<1>, b: &Tensor<1>) -> Tensor<2> {
    let ([inputs], [outputs]) = ([x.dims()[1]], b.dims());
    module::linear(x, w.clone().reshape([inputs, outputs]), Some(b.clone()))
}

/// qkv [R, 3d] to [R, d].
fn attention(qkv: Tensor<2>, [n, t]: [usize; 2], heads: usize, mask: Tensor<4>) -> Tensor<2> {
    let [q, k, v] = split(qkv, [n, t], heads);
    attend(q, k, v, Some(mask))
}

/// q, k and v [N, h, T, d/h] of qkv [N T, 3d].
pub(crate) fn split(qkv: Tensor<2>, [n, t]: [usize; 2], heads: usize) -> [Tensor<4>; 3] {
    let d = qkv.dims()[1] / 3;
    [0, 1, 2]
        .map(|index| qkv.clone().narrow(1, index * d, d).reshape([n, t, heads, d / heads]).swap_dims(1, 2))
}

/// Attention of q [N, h, T, d/h] over k and v [N, h, S, d/h], with `mask` [1, 1, T, S] added: [N T, d].
pub(crate) fn attend(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, mask: Option<Tensor<4>>) -> Tensor<2> {
    let [n, heads, t, size] = q.dims();
    let scores = q.mul_scalar(1.0 / (size as f64).sqrt()).matmul(k.swap_dims(2, 3));
    let scores = match mask {
        Some(mask) => scores + mask,
        None => scores,
    };
    let weights = activation::softmax(scores, 3);
    weights.matmul(v).swap_dims(1, 2).reshape([n * t, heads * size])
}

/// GPT-2's GELU, `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`, without a power of a negative base, which
/// WGSL leaves undefined.
fn gelu(x: Tensor<2>) -> Tensor<2> {
    let slope = (2.0 / std::f64::consts::PI).sqrt();
    let cubic = x.clone().square().mul_scalar(0.044_715 * slope).add_scalar(slope);
    let tanh = (x.clone() * cubic).tanh();
    x.mul_scalar(0.5) * tanh.add_scalar(1.0)
}
