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
const TILE: usize = 2048;
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
            let w = [w_row(first), w_row(first + 1), w_row(first + 2), w_row(first + 3)];
            for (row, x) in out.iter_mut().zip(x.chunks_exact(inputs)) {
                let factors = [x[first], x[first + 1], x[first + 2], x[first + 3]];
                add_group::<FUSED>(&mut row[start..][..len], factors, w);
            }
        }
        for input in whole..inputs {
            for (row, x) in out.iter_mut().zip(x.chunks_exact(inputs)) {
                for (out, weight) in row[start..][..len].iter_mut().zip(w_row(input)) {
                    *out = multiply_add::<FUSED>(x[input], *weight, *out);
                }
            }
        }
    }
}

/// `out += factors[0] w[0]`, then `factors[1] w[1]` and so on; all of one length.
#[inline(always)]
fn add_group<const FUSED: bool>(out: &mut [f32], factors: [f32; GROUP], w: [&[f32]; GROUP]) {
    let [f0, f1, f2, f3] = factors.map(|factor| [factor; LANES]);
    let (chunks, tail) = out.as_chunks_mut::<LANES>();
    let done = chunks.len() * LANES;
    let [w0, w1, w2, w3] = w.map(|row| row.as_chunks::<LANES>().0);
    for ((((chunk, w0), w1), w2), w3) in chunks.iter_mut().zip(w0).zip(w1).zip(w2).zip(w3) {
        let sums = lanes::<FUSED>(f0, *w0, *chunk);
        let sums = lanes::<FUSED>(f1, *w1, sums);
        let sums = lanes::<FUSED>(f2, *w2, sums);
        *chunk = lanes::<FUSED>(f3, *w3, sums);
    }
    for (index, out) in tail.iter_mut().enumerate() {
        for (factor, row) in factors.iter().zip(w) {
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
        let rows = [row_of(first), row_of(first + 1), row_of(first + 2), row_of(first + 3)];
        for (out, x) in out.iter_mut().zip(x.chunks_exact(inputs)) {
            out[first..first + GROUP].copy_from_slice(&dot_group::<FUSED>(x, rows));
        }
    }
    for row in whole..width {
        for (out, x) in out.iter_mut().zip(x.chunks_exact(inputs)) {
            out[row] = dot::<FUSED>(x, row_of(row));
        }
    }
}

/// Products of `x` with rows of its length.
#[inline(always)]
fn dot_group<const FUSED: bool>(x: &[f32], rows: [&[f32]; GROUP]) -> [f32; GROUP] {
    let zero = [0.0; LANES];
    let (mut s0, mut s1, mut s2, mut s3) = (zero, zero, zero, zero);
    let [r0, r1, r2, r3] = rows.map(|row| row.as_chunks::<LANES>().0);
    for ((((x, r0), r1), r2), r3) in x.as_chunks::<LANES>().0.iter().zip(r0).zip(r1).zip(r2).zip(r3) {
        s0 = lanes::<FUSED>(*x, *r0, s0);
        s1 = lanes::<FUSED>(*x, *r1, s1);
        s2 = lanes::<FUSED>(*x, *r2, s2);
        s3 = lanes::<FUSED>(*x, *r3, s3);
    }
    let [r0, r1, r2, r3] = rows;
    [
        total::<FUSED>(s0, x, r0),
        total::<FUSED>(s1, x, r1),
        total::<FUSED>(s2, x, r2),
        total::<FUSED>(s3, x, r3),
    ]
}

#[inline(always)]
fn dot<const FUSED: bool>(x: &[f32], row: &[f32]) -> f32 {
    let chunks = x.as_chunks::<LANES>().0.iter().zip(row.as_chunks::<LANES>().0);
    let sums = chunks.fold([0.0; LANES], |sums, (x, row)| lanes::<FUSED>(*x, *row, sums));
    total::<FUSED>(sums, x, row)
}

/// The lanes' sum, with the products that fill no lanes.
#[inline(always)]
fn total<const FUSED: bool>(mut lanes: [f32; LANES], x: &[f32], row: &[f32]) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    let tail = x.as_chunks::<LANES>().1.iter().zip(row.as_chunks::<LANES>().1);
    tail.fold(lanes[0], |sum, (x, weight)| multiply_add::<FUSED>(*x, *weight, sum))
}

/// `a b + c` in every lane.
#[inline(always)]
fn lanes<const FUSED: bool>(a: [f32; LANES], b: [f32; LANES], mut c: [f32; LANES]) -> [f32; LANES] {
    for lane in 0..LANES {
        c[lane] = multiply_add::<FUSED>(a[lane], b[lane], c[lane]);
    }
    c
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
