//! Token table plus position table.

use super::parallel;
use crate::{parameters::CpuParameter, sizes::Sizes};

/// Hidden states [R, d] of the tokens [R], all below V.
pub(crate) fn forward(
    tokens: &[u32],
    table: &CpuParameter,
    positions: &CpuParameter,
    sizes: Sizes,
) -> Vec<f32> {
    at(tokens, |row| row % sizes.tokens, table, positions, sizes.width)
}

/// The same, each row at a position of its own.
pub(crate) fn at(
    tokens: &[u32],
    position_of: impl Fn(usize) -> usize + Sync,
    table: &CpuParameter,
    positions: &CpuParameter,
    d: usize,
) -> Vec<f32> {
    let (table, positions) = (table.value(), positions.value());
    let mut out = vec![0.0; tokens.len() * d];
    parallel::rows(&mut out, d, |first, out| {
        for (row, out) in (first..).zip(out.chunks_exact_mut(d)) {
            let token = &table[tokens[row] as usize * d..][..d];
            let position = &positions[position_of(row) * d..][..d];
            for ((out, token), position) in out.iter_mut().zip(token).zip(position) {
                *out = token + position;
            }
        }
    });
    out
}

/// Adds to the gradients of both tables.
pub(crate) fn backward(
    dy: &[f32],
    tokens: &[u32],
    table: &mut CpuParameter,
    positions: &mut CpuParameter,
    sizes: Sizes,
) {
    let d = sizes.width;
    let ((_, table), (_, positions)) = (table.split(), positions.split());
    for (row, (dy, &token)) in dy.chunks_exact(d).zip(tokens).enumerate() {
        let token = &mut table[token as usize * d..][..d];
        let position = &mut positions[(row % sizes.tokens) * d..][..d];
        for ((dy, token), position) in dy.iter().zip(token).zip(position) {
            *token += dy;
            *position += dy;
        }
    }
}
