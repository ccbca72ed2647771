//! Work in equal pieces, on every thread natively and one after the other in a tab.
//!
//! The pieces depend on the sizes alone, never on the number of threads: results are the same bits on any
//! machine with the same instructions.

/// Rows per piece, so that a piece has some ten thousand numbers.
pub(crate) fn grain(rows: usize, row_len: usize) -> usize {
    (16_384 / row_len.max(1)).clamp(1, rows.max(1))
}

#[cfg(not(web))]
mod imp {
    use rayon::prelude::*;

    pub(crate) fn threads() -> usize {
        rayon::current_num_threads()
    }

    pub(crate) fn each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
        if items.len() < 2 {
            items.into_iter().for_each(work);
        } else {
            items.into_par_iter().for_each(&work);
        }
    }

    pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        if items.len() < 2 {
            items.into_iter().map(work).collect()
        } else {
            items.into_par_iter().map(&work).collect()
        }
    }
}

#[cfg(web)]
mod imp {
    pub(crate) fn threads() -> usize {
        1
    }

    pub(crate) fn each<T>(items: Vec<T>, work: impl Fn(T)) {
        items.into_iter().for_each(work);
    }

    pub(crate) fn map<T, R>(items: Vec<T>, work: impl Fn(T) -> R) -> Vec<R> {
        items.into_iter().map(work).collect()
    }
}

/// `threads` is for work whose results do not depend on how it is cut.
pub(crate) use imp::{each, map, threads};

/// Calls `work(index of the first row, rows)` for pieces of `rows_of`, whose rows have `row_len` numbers.
pub(crate) fn rows(values: &mut [f32], row_len: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    let grain = grain(values.len() / row_len, row_len);
    let pieces: Vec<_> = values.chunks_mut(grain * row_len).enumerate().collect();
    each(pieces, |(piece, rows)| work(piece * grain, rows));
}

/// Adds to `sum` the vectors that `work(first row, row after the last)` makes for pieces of `rows` rows.
pub(crate) fn reduce(sum: &mut [f32], rows: usize, work: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync) {
    let grain = grain(rows, sum.len()).max(rows.div_ceil(16));
    let pieces: Vec<_> = (0..rows).step_by(grain).map(|start| start..(start + grain).min(rows)).collect();
    let partial = map(pieces, |piece| {
        let mut part = vec![0.0; sum.len()];
        work(piece, &mut part);
        part
    });
    for part in partial {
        sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
}
