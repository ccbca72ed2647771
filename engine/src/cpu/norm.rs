//! Layer norm: `(x - mean) / sqrt(variance + 1e-5) * weight + bias` over the last dimension.

use super::{
    parallel,
    simd::{sum, sum_of, vectorised},
};

const EPSILON: f32 = 1e-5;

/// `[mean, 1 / sqrt(variance + epsilon)]` of each row.
pub(crate) type Statistics = Vec<[f32; 2]>;

/// Mean and spread of every row of `x`, whose rows have `width` numbers.
pub(crate) fn statistics(x: &[f32], width: usize) -> Statistics {
    let rows = x.len() / width;
    let grain = parallel::grain(rows, width);
    let mut statistics = vec![[0.0; 2]; rows];
    let pieces: Vec<_> = x.chunks(grain * width).zip(statistics.chunks_mut(grain)).collect();
    parallel::each(pieces, |(x, statistics)| statistics_of_rows(x, width, statistics));
    statistics
}

/// The normalised rows.
pub(crate) fn normalise(x: &[f32], statistics: &Statistics, weight: &[f32], bias: &[f32]) -> Vec<f32> {
    let width = weight.len();
    let mut out = vec![0.0; x.len()];
    parallel::rows(&mut out, width, |first, out| {
        let end = first + out.len() / width;
        let x = &x[first * width..end * width];
        normalise_rows(x, &statistics[first..end], weight, bias, out);
    });
    out
}

/// Backward pass: adds to `dx`, and to the gradients of weight and bias.
pub(crate) fn backward(
    dy: &[f32],
    x: &[f32],
    statistics: &Statistics,
    dx: &mut [f32],
    (weight, dweight): (&[f32], &mut [f32]),
    dbias: &mut [f32],
) {
    let width = weight.len();
    parallel::rows(dx, width, |first, dx| {
        let end = first + dx.len() / width;
        let range = first * width..end * width;
        input_gradient(&dy[range.clone()], &x[range], &statistics[first..end], weight, dx);
    });
    let mut sums = vec![0.0; 2 * width];
    parallel::reduce(&mut sums, x.len() / width, |rows, sums| {
        let (weight, bias) = sums.split_at_mut(width);
        let range = rows.start * width..rows.end * width;
        parameter_gradients(&dy[range.clone()], &x[range], &statistics[rows], weight, bias);
    });
    for (sum, part) in dweight.iter_mut().chain(dbias).zip(sums) {
        *sum += part;
    }
}

vectorised! {
    fn statistics_of_rows(x: &[f32], width: usize, statistics: &mut [[f32; 2]]) {
        for (row, statistics) in x.chunks_exact(width).zip(statistics) {
            let mean = sum(row) / width as f32;
            let variance = sum_of(width, |i| (row[i] - mean) * (row[i] - mean)) / width as f32;
            *statistics = [mean, 1.0 / (variance + EPSILON).sqrt()];
        }
    }

    fn normalise_rows(x: &[f32], statistics: &[[f32; 2]], weight: &[f32], bias: &[f32], out: &mut [f32]) {
        let width = weight.len();
        let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
        for ((x, out), [mean, inverse]) in rows.zip(statistics) {
            for i in 0..width {
                out[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
            }
        }
    }

    fn input_gradient(dy: &[f32], x: &[f32], statistics: &[[f32; 2]], weight: &[f32], dx: &mut [f32]) {
        let width = weight.len();
        let rows = dy.chunks_exact(width).zip(x.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
        for (((dy, x), dx), &[mean, inverse]) in rows.zip(statistics) {
            let (dy, x, weight) = (&dy[..width], &x[..width], &weight[..width]);
            let centre = sum_of(width, |i| dy[i] * weight[i]) / width as f32;
            let tilt = sum_of(width, |i| dy[i] * weight[i] * (x[i] - mean)) * inverse / width as f32;
            for i in 0..width {
                dx[i] += inverse * (dy[i] * weight[i] - centre - (x[i] - mean) * inverse * tilt);
            }
        }
    }

    fn parameter_gradients(dy: &[f32], x: &[f32], statistics: &[[f32; 2]], dweight: &mut [f32], dbias: &mut [f32]) {
        let width = dweight.len();
        let rows = dy.chunks_exact(width).zip(x.chunks_exact(width));
        for ((dy, x), [mean, inverse]) in rows.zip(statistics) {
            let dbias = &mut dbias[..width];
            for i in 0..width {
                dweight[i] += dy[i] * (x[i] - mean) * inverse;
                dbias[i] += dy[i];
            }
        }
    }
}
