//! Products of few rows with a matrix, for decoding: the matrix is read from memory once for all rows.
//!
//! Decoding is bound by reading the weights. Each output is summed over the inner index in one order, whatever
//! the number of rows and threads: a row gives the same bits alone, in a batch, as a draft that is verified and
//! in a long prompt. Texts therefore do not depend on who else is served, and a cache that is built again is the
//! one that was lost.

use super::parallel;

/// Numbers that the kernels hold at once of a row: two vectors of AVX2, four of WASM.
const LANES: usize = 16;
/// Rows of the matrix that are worked on together.
const GROUP: usize = 4;
/// Rows whose outputs are made together; the matrix is read again for the next ones.
const BLOCK: usize = 32;
/// Numbers of the outputs that stay in the first level of cache.
const TILE: usize = 8192;
/// Products with fewer multiplications are not worth a second thread.
const WORTH_THREADS: usize = 1 << 17;

/// `out += x w`, with x [R, inputs], w [inputs, outputs] and out [R, outputs].
pub(crate) fn add_product(out: &mut [f32], x: &[f32], w: &[f32], inputs: usize) {
    let outputs = w.len() / inputs;
    for (out, x) in out.chunks_mut(BLOCK * outputs).zip(x.chunks(BLOCK * inputs)) {
        by_columns(out, outputs, x.len() * outputs, |first, out| {
            add_columns(out, x, &w[first..], inputs, outputs);
        });
    }
}

/// `out = x table^T`, with x [R, inputs], table [outputs, inputs] and out [R, outputs].
pub(crate) fn dots(out: &mut [f32], x: &[f32], table: &[f32], inputs: usize) {
    let outputs = table.len() / inputs;
    for (out, x) in out.chunks_mut(BLOCK * outputs).zip(x.chunks(BLOCK * inputs)) {
        by_columns(out, outputs, x.len() * outputs, |first, out| {
            dot_columns(out, x, &table[first * inputs..], inputs);
        });
    }
}

/// Calls `work(first column, that part of every row)` for as many parts as there are threads.
fn by_columns(
    out: &mut [f32],
    columns: usize,
    multiplications: usize,
    work: impl Fn(usize, &mut [&mut [f32]]) + Sync,
) {
    let parts = if multiplications < WORTH_THREADS { 1 } else { parallel::threads() };
    let len = columns.div_ceil(parts).next_multiple_of(LANES);
    let mut pieces: Vec<(usize, Vec<&mut [f32]>)> =
        (0..columns).step_by(len).map(|first| (first, Vec::new())).collect();
    for row in out.chunks_exact_mut(columns) {
        for (part, (_, rows)) in row.chunks_mut(len).zip(&mut pieces) {
            rows.push(part);
        }
    }
    parallel::each(pieces, |(first, mut rows)| work(first, &mut rows));
}

/// A function compiled twice on x86-64: for every processor, and for those with AVX2 and fused multiply-add.
macro_rules! fused {
    ($($(#[$attribute:meta])* $visibility:vis fn $name:ident = $body:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {$(
        $(#[$attribute])*
        $visibility fn $name($($argument: $kind),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn wide($($argument: $kind),*) {
                    $body::<true>($($argument),*);
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has what `wide` was compiled for.
                    return unsafe { wide($($argument),*) };
                }
            }
            $body::<false>($($argument),*);
        }
    )*};
}

fused! {
    /// Adds to every row's columns those of `w`, which begins at the first of them and has `stride` in a row.
    fn add_columns = add_columns_body(out: &mut [&mut [f32]], x: &[f32], w: &[f32], inputs: usize, stride: usize);
    /// `out[r][v] = x[r] table[v]`.
    fn dot_columns = dot_columns_body(out: &mut [&mut [f32]], x: &[f32], table: &[f32], inputs: usize);
    /// `out = sum of weights[j] rows[j]`, whose rows are as long as `out`; on one thread.
    pub(crate) fn mix = mix_body(out: &mut [f32], weights: &[f32], rows: &[f32]);
    /// `out[j] = x rows[j]`, on one thread.
    pub(crate) fn scores = scores_body(out: &mut [f32], x: &[f32], rows: &[f32]);
}

/// `a b + c`, rounded once where the processor can.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn add_columns_body<const FUSED: bool>(
    out: &mut [&mut [f32]],
    x: &[f32],
    w: &[f32],
    inputs: usize,
    stride: usize,
) {
    let width = out.first().map_or(0, |row| row.len());
    let tile = (TILE / out.len().max(1)).max(256);
    for start in (0..width).step_by(tile) {
        let len = tile.min(width - start);
        let w_row = |input: usize| &w[input * stride + start..][..len];
        let whole = inputs - inputs % GROUP;
        for first in (0..whole).step_by(GROUP) {
            let w: [&[f32]; GROUP] = std::array::from_fn(|offset| w_row(first + offset));
            for (row, x) in out.iter_mut().zip(x.chunks_exact(inputs)) {
                let factors: [f32; GROUP] = std::array::from_fn(|offset| x[first + offset]);
                add_rows::<FUSED, GROUP>(&mut row[start..][..len], factors, w);
            }
        }
        for input in whole..inputs {
            for (row, x) in out.iter_mut().zip(x.chunks_exact(inputs)) {
                add_rows::<FUSED, 1>(&mut row[start..][..len], [x[input]], [w_row(input)]);
            }
        }
    }
}

/// `out += factors[0] w[0]`, then `factors[1] w[1]` and so on; all of one length.
#[inline(always)]
fn add_rows<const FUSED: bool, const N: usize>(out: &mut [f32], factors: [f32; N], w: [&[f32]; N]) {
    let (chunks, tail) = out.as_chunks_mut::<LANES>();
    let w_chunks: [&[[f32; LANES]]; N] = w.map(|row| &row.as_chunks::<LANES>().0[..chunks.len()]);
    let done = chunks.len() * LANES;
    for (index, chunk) in chunks.iter_mut().enumerate() {
        let mut sums = *chunk;
        for (factor, row) in factors.iter().zip(&w_chunks) {
            for (sum, weight) in sums.iter_mut().zip(&row[index]) {
                *sum = multiply_add::<FUSED>(*factor, *weight, *sum);
            }
        }
        *chunk = sums;
    }
    for (index, out) in tail.iter_mut().enumerate() {
        for (factor, row) in factors.iter().zip(&w) {
            *out = multiply_add::<FUSED>(*factor, row[done + index], *out);
        }
    }
}

#[inline(always)]
fn dot_columns_body<const FUSED: bool>(out: &mut [&mut [f32]], x: &[f32], table: &[f32], inputs: usize) {
    let width = out.first().map_or(0, |row| row.len());
    let row_of = |row: usize| &table[row * inputs..][..inputs];
    let whole = width - width % GROUP;
    for first in (0..whole).step_by(GROUP) {
        let rows: [&[f32]; GROUP] = std::array::from_fn(|offset| row_of(first + offset));
        for (out, x) in out.iter_mut().zip(x.chunks_exact(inputs)) {
            out[first..first + GROUP].copy_from_slice(&dot_rows::<FUSED, GROUP>(x, rows));
        }
    }
    for row in whole..width {
        for (out, x) in out.iter_mut().zip(x.chunks_exact(inputs)) {
            out[row] = dot_rows::<FUSED, 1>(x, [row_of(row)])[0];
        }
    }
}

/// Products of `x` with rows of its length.
#[inline(always)]
fn dot_rows<const FUSED: bool, const N: usize>(x: &[f32], rows: [&[f32]; N]) -> [f32; N] {
    let (chunks, tail) = x.as_chunks::<LANES>();
    let row_chunks: [&[[f32; LANES]]; N] = rows.map(|row| &row.as_chunks::<LANES>().0[..chunks.len()]);
    let done = chunks.len() * LANES;
    let mut sums = [[0.0f32; LANES]; N];
    for (index, x) in chunks.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(&row_chunks) {
            for ((sum, x), weight) in sums.iter_mut().zip(x).zip(&row[index]) {
                *sum = multiply_add::<FUSED>(*x, *weight, *sum);
            }
        }
    }
    std::array::from_fn(|row| {
        let lanes = &mut sums[row];
        for half in [8, 4, 2, 1] {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
        }
        let tail = tail.iter().zip(&rows[row][done..]);
        tail.fold(lanes[0], |sum, (x, weight)| multiply_add::<FUSED>(*x, *weight, sum))
    })
}

#[inline(always)]
fn mix_body<const FUSED: bool>(out: &mut [f32], weights: &[f32], rows: &[f32]) {
    out.fill(0.0);
    let width = out.len();
    add_columns_body::<FUSED>(&mut [out], weights, rows, weights.len(), width);
}

#[inline(always)]
fn scores_body<const FUSED: bool>(out: &mut [f32], x: &[f32], rows: &[f32]) {
    dot_columns_body::<FUSED>(&mut [out], x, rows, x.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::{random, unit};

    fn values(len: usize, seed: u64) -> Vec<f32> {
        (0..len as u64).map(|i| unit(random(seed, i)) as f32 - 0.5).collect()
    }

    /// Sizes around the kernels' groups, blocks and lanes; the last ones are split among threads.
    const SIZES: [[usize; 3]; 6] =
        [[1, 1, 1], [1, 5, 17], [3, 4, 16], [33, 7, 19], [2, 260, 530], [70, 96, 1100]];

    #[test]
    fn products_are_those_of_f64() {
        for [rows, inputs, outputs] in SIZES {
            let (x, w) = (values(rows * inputs, 1), values(inputs * outputs, 2));
            let mut added = vec![1.0; rows * outputs];
            add_product(&mut added, &x, &w, inputs);
            let transposed: Vec<f32> = (0..w.len()).map(|i| w[(i % inputs) * outputs + i / inputs]).collect();
            let mut dotted = vec![f32::NAN; rows * outputs];
            dots(&mut dotted, &x, &transposed, inputs);
            for r in 0..rows {
                for c in 0..outputs {
                    let terms =
                        (0..inputs).map(|i| f64::from(x[r * inputs + i]) * f64::from(w[i * outputs + c]));
                    let exact: f64 = terms.sum();
                    // 2^-24 of each partial sum, which are below 1 here, times at most 260 additions.
                    let near = |found: f32, exact: f64| (f64::from(found) - exact).abs() < 2e-5;
                    assert!(near(added[r * outputs + c], exact + 1.0), "{rows} {inputs} {outputs}");
                    assert!(near(dotted[r * outputs + c], exact), "{rows} {inputs} {outputs}");
                }
            }
        }
    }

    #[test]
    fn a_row_gives_the_same_bits_alone_and_among_others() {
        for [rows, inputs, outputs] in SIZES {
            let (x, w) = (values(rows * inputs, 3), values(inputs * outputs, 4));
            for product in [add_product, dots] {
                let mut together = vec![0.0; rows * outputs];
                product(&mut together, &x, &w, inputs);
                for (x, together) in x.chunks_exact(inputs).zip(together.chunks_exact(outputs)) {
                    let mut alone = vec![0.0; outputs];
                    product(&mut alone, x, &w, inputs);
                    assert_eq!(alone, together);
                }
            }
        }
    }
}
