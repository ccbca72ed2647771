//! One layer: `x1 = x + proj(attention(ln_1(x)))`, `y = x1 + mlp(ln_2(x1))`.

use super::{
    attention, gelu,
    matmul::{Into, Matrix, biased, linear_backward, product},
    norm::{self, Statistics},
};
use crate::{parameters::CpuParameter, sizes::Sizes};

/// What the backward pass needs. Normalised rows and GELUs are computed again: they are cheap.
pub(crate) struct Saved {
    x: Vec<f32>,
    norm_1: Statistics,
    qkv: Vec<f32>,
    attention: attention::Saved,
    attended: Vec<f32>,
    x1: Vec<f32>,
    norm_2: Statistics,
    /// Before GELU.
    h: Vec<f32>,
}

/// x [R, d] to y [R, d]; `parameters` as in [`crate::gpt2::shapes::LAYER_SUFFIXES`].
pub(crate) fn forward(x: Vec<f32>, parameters: &[CpuParameter], sizes: Sizes) -> (Vec<f32>, Saved) {
    let (rows, d) = (sizes.rows(), sizes.width);
    let w = |index: usize| parameters[index].value();
    let norm_1 = norm::statistics(&x, d);
    let normed = norm::normalise(&x, &norm_1, w(0), w(1));
    let mut qkv = biased(None, w(3), rows);
    product(&mut qkv, Into::Add, Matrix::new(&normed, rows, d), Matrix::new(w(2), d, 3 * d));
    let (attended, attention) = attention::forward(&qkv, sizes);
    let mut x1 = biased(Some(&x), w(5), rows);
    product(&mut x1, Into::Add, Matrix::new(&attended, rows, d), Matrix::new(w(4), d, d));

    let norm_2 = norm::statistics(&x1, d);
    let normed = norm::normalise(&x1, &norm_2, w(6), w(7));
    let mut h = vec![0.0; rows * 4 * d];
    product(&mut h, Into::Replace, Matrix::new(&normed, rows, d), Matrix::new(w(8), d, 4 * d));
    let activated = gelu::biased(&mut h, w(9));
    let mut y = biased(Some(&x1), w(11), rows);
    product(&mut y, Into::Add, Matrix::new(&activated, rows, 4 * d), Matrix::new(w(10), 4 * d, d));
    (y, Saved { x, norm_1, qkv, attention, attended, x1, norm_2, h })
}

/// Gradient of y to that of x; adds to the gradients of `parameters`.
pub(crate) fn backward(
    dy: Vec<f32>,
    saved: Saved,
    parameters: &mut [CpuParameter],
    sizes: Sizes,
) -> Vec<f32> {
    let rows = sizes.rows();
    let Saved { x, norm_1, qkv, attention, attended, x1, norm_2, h } = saved;

    let activated = gelu::apply(&h);
    let mut dh = linear(&dy, &activated, rows, parameters, 10);
    drop(activated);
    gelu::backward(&mut dh, &h);
    let normed = norm::normalise(&x1, &norm_2, parameters[6].value(), parameters[7].value());
    let dnormed = linear(&dh, &normed, rows, parameters, 8);
    let mut dx = dy;
    norm_backward(&dnormed, &x1, &norm_2, &mut dx, parameters, 6);

    let dattended = linear(&dx, &attended, rows, parameters, 4);
    let dqkv = attention::backward(&qkv, &attended, &dattended, &attention, sizes);
    let normed = norm::normalise(&x, &norm_1, parameters[0].value(), parameters[1].value());
    let dnormed = linear(&dqkv, &normed, rows, parameters, 2);
    norm_backward(&dnormed, &x, &norm_1, &mut dx, parameters, 0);
    dx
}

/// Backward of the linear map whose weight is `parameters[index]` and whose bias is the next one.
fn linear(dy: &[f32], x: &[f32], rows: usize, parameters: &mut [CpuParameter], index: usize) -> Vec<f32> {
    let (weight, bias) = pair(parameters, index);
    linear_backward(dy, x, rows, weight.split(), bias.split())
}

/// Backward of the layer norm whose weight is `parameters[index]` and whose bias is the next one.
pub(crate) fn norm_backward(
    dy: &[f32],
    x: &[f32],
    statistics: &Statistics,
    dx: &mut [f32],
    parameters: &mut [CpuParameter],
    index: usize,
) {
    let (weight, bias) = pair(parameters, index);
    norm::backward(dy, x, statistics, dx, weight.split(), bias.split().1);
}

fn pair(parameters: &mut [CpuParameter], index: usize) -> (&mut CpuParameter, &mut CpuParameter) {
    let (before, after) = parameters.split_at_mut(index + 1);
    (&mut before[index], &mut after[0])
}
