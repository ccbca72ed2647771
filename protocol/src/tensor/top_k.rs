//! Top-k with error feedback: send the largest entries, keep what was not sent for the next time.

use super::{CodecError, check_finite};

/// The entries to send.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Positions in the flattened tensor, ascending.
    pub indices: Vec<u32>,
    /// The value at each of them.
    pub values: Vec<f32>,
}

/// Number of entries sent of `n`: k = max(1, ceil(n * per_mille / 1000)), at most n; 0 for n = 0.
pub fn count(n: usize, per_mille: u32) -> usize {
    let share = (n as u128 * u128::from(per_mille)).div_ceil(1000);
    // The share of any n in memory and any per_mille fits after the minimum with n.
    (share.max(1).min(n as u128)) as usize
}

/// Adds `gradient` to `residual`, selects the [`count`] largest sums by size, and clears those in `residual`.
///
/// Of equal sizes the lowest index goes first. Always exactly k entries, zeros included. Per entry:
///
/// ```text
/// total = gradient + residual (f32);  sent: residual = 0;  not sent: residual = total
/// ```
///
/// # Errors
/// Different lengths, more entries than a u32 can number, or a sum that is NaN or infinite. `residual` is then
/// as before.
pub fn select(gradient: &[f32], residual: &mut [f32], per_mille: u32) -> Result<Selection, CodecError> {
    if gradient.len() != residual.len() || u32::try_from(gradient.len()).is_err() {
        return Err(CodecError::Residual { residual: residual.len(), gradient: gradient.len() });
    }
    let total: Vec<f32> = gradient.iter().zip(&*residual).map(|(gradient, rest)| gradient + rest).collect();
    check_finite(&total)?;

    let indices = largest(&total, count(total.len(), per_mille));
    let values = indices.iter().map(|&index| total[index as usize]).collect();
    residual.copy_from_slice(&total);
    for &index in &indices {
        residual[index as usize] = 0.0;
    }
    Ok(Selection { indices, values })
}

/// Positions of the `k` values of the largest size, ascending; of equal sizes the lowest position.
fn largest(values: &[f32], k: usize) -> Vec<u32> {
    let mut indices: Vec<u32> = (0..values.len() as u32).collect();
    if k < indices.len() {
        // The bits of a size order like the size, so the key needs no partial order.
        let key = |&index: &u32| (!values[index as usize].abs().to_bits(), index);
        indices.select_nth_unstable_by_key(k, key);
        indices.truncate(k);
        indices.sort_unstable();
    }
    indices
}
