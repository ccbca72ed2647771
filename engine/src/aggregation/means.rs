//! Robust means of the workers' contributions.
//!
//! A contribution is all of a worker's delta (trained minus base weights) as one flat vector; lengths are L2
//! over all of it. Sums run in f64 and are rounded once, in pieces that depend on the sizes alone, so the
//! bits do not depend on the number of threads. Every value must be finite: `protocol::delta` lets nothing
//! else through.

use serde::{Deserialize, Serialize};

use super::AggregateError;
use crate::cpu::parallel;

/// How contributions become one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregator {
    /// The plain mean: one bad contribution moves it anywhere.
    Mean,
    /// Each contribution times min(1, median length / own length), then the mean.
    ClipToMedianNorm,
    /// Per coordinate, the mean without the `trim` smallest and the `trim` largest values.
    ///
    /// Where fewer than 2 trim + 1 contributions have arrived, as many are dropped as leave one or two: the
    /// rule is then the median, so that a thin round still gives an update, and never a less robust one.
    TrimmedMean {
        /// Values dropped at either end.
        trim: u32,
    },
    /// Per coordinate; of an even count the mean of the two middle values.
    Median,
    /// Karimireddy, He and Jaggi, <https://arxiv.org/abs/2012.10333>:
    /// `iterations` times v += mean_i((x_i - v) min(1, radius / |x_i - v|)), from the previous update, or
    /// from zero in the first round.
    ///
    /// Without a radius, the median length of the contributions.
    CentredClip {
        /// Longest difference from v that counts in full; None: the median length.
        radius: Option<f64>,
        /// Steps towards the middle, at least 1.
        iterations: u32,
    },
}

/// Columns per piece of work.
const PIECE: usize = 1 << 14;
/// Columns sorted together: their rows fit into the processor's first cache for tens of contributions.
const COLUMNS: usize = 256;

/// Aggregates `contributions`, all of one length, by `rule`.
///
/// `previous` is the last round's aggregate, where [`Aggregator::CentredClip`] starts; the other rules do not
/// look at it.
///
/// # Errors
/// No contributions, contributions or a previous aggregate of different lengths, or a centred clip with a
/// radius or a number of iterations that makes no sense.
pub fn aggregate(
    rule: &Aggregator,
    contributions: &[&[f32]],
    previous: Option<&[f32]>,
) -> Result<Vec<f32>, AggregateError> {
    check_lengths(contributions)?;
    let count = contributions.len();
    match *rule {
        Aggregator::Mean => Ok(combine(contributions, &vec![1.0; count], count as f64)),
        Aggregator::ClipToMedianNorm => {
            let norms: Vec<f64> = contributions.iter().map(|contribution| norm(contribution)).collect();
            let limit = median(&norms);
            let factors: Vec<f64> = norms.iter().map(|&norm| shrink(norm, limit)).collect();
            Ok(combine(contributions, &factors, count as f64))
        }
        Aggregator::TrimmedMean { trim } => Ok(middle(contributions, (trim as usize).min((count - 1) / 2))),
        Aggregator::Median => Ok(middle(contributions, (count - 1) / 2)),
        Aggregator::CentredClip { radius, iterations } => {
            centred_clip(contributions, previous, radius, iterations)
        }
    }
}

/// sum_i(weight_i x_i) / sum_i(weight_i).
///
/// # Errors
/// No contributions, different lengths, or weights that are not one per contribution, finite, not negative
/// and not all 0.
pub fn weighted_mean(contributions: &[&[f32]], weights: &[f64]) -> Result<Vec<f32>, AggregateError> {
    check_lengths(contributions)?;
    if weights.len() != contributions.len() {
        return Err(AggregateError::Weights { weights: weights.len(), contributions: contributions.len() });
    }
    if let Some(index) = weights.iter().position(|&weight| !(weight >= 0.0 && weight.is_finite())) {
        return Err(AggregateError::Weight { index, weight: weights[index] });
    }
    let sum: f64 = weights.iter().sum();
    if !(sum > 0.0 && sum.is_finite()) {
        return Err(AggregateError::Weight { index: 0, weight: weights[0] });
    }
    Ok(combine(contributions, weights, sum))
}

/// L2 length, in f64.
pub fn norm(values: &[f32]) -> f64 {
    let squares = parallel::map(values.chunks(PIECE).collect(), |piece| squared_distance(piece, None));
    libm::sqrt(squares.iter().sum())
}

/// The middle value, or the mean of the two middle ones; 0 for none.
///
/// For lengths of contributions: of these, the median is what a single liar cannot move far.
pub fn median(values: &[f64]) -> f64 {
    let mut ordered = values.to_vec();
    ordered.sort_unstable_by(f64::total_cmp);
    match ordered.len() {
        0 => 0.0,
        count => f64::midpoint(ordered[(count - 1) / 2], ordered[count / 2]),
    }
}

/// min(1, limit / length).
fn shrink(length: f64, limit: f64) -> f64 {
    if length <= limit { 1.0 } else { limit / length }
}

fn check_lengths(contributions: &[&[f32]]) -> Result<(), AggregateError> {
    let expected = contributions.first().ok_or(AggregateError::Nothing)?.len();
    match contributions.iter().position(|contribution| contribution.len() != expected) {
        Some(index) => {
            let found = contributions[index].len();
            Err(AggregateError::Length { what: "contribution", index, found, expected })
        }
        None => Ok(()),
    }
}

/// sum_i(factor_i x_i) / divisor.
fn combine(contributions: &[&[f32]], factors: &[f64], divisor: f64) -> Vec<f32> {
    let mut out = vec![0.0; contributions[0].len()];
    pieces(&mut out, |start, out| {
        let mut sums = vec![0.0; out.len()];
        for (contribution, &factor) in contributions.iter().zip(factors) {
            for (sum, &value) in sums.iter_mut().zip(&contribution[start..]) {
                *sum += factor * f64::from(value);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = (sum / divisor) as f32;
        }
    });
    out
}

/// Per coordinate, the mean of what is left without the `trim` smallest and the `trim` largest values, of
/// which there are more than 2 trim.
fn middle(contributions: &[&[f32]], trim: usize) -> Vec<f32> {
    let mut out = vec![0.0; contributions[0].len()];
    pieces(&mut out, |start, out| {
        let mut rows = vec![[0.0; COLUMNS]; contributions.len()];
        for (block, out) in out.chunks_mut(COLUMNS).enumerate() {
            let start = start + block * COLUMNS;
            for (row, contribution) in rows.iter_mut().zip(contributions) {
                row[..out.len()].copy_from_slice(&contribution[start..start + out.len()]);
            }
            drop_ends(&mut rows, trim);
            mean_of(&rows[trim..rows.len() - trim], out);
        }
    });
    out
}

/// Orders every column of `rows` so far that its `trim` smallest values lie in the first rows and its `trim`
/// largest in the last.
///
/// Neighbouring rows are compared and exchanged as a whole, which becomes vector instructions: for tens of
/// contributions that is far quicker than to sort column by column.
fn drop_ends(rows: &mut [[f32; COLUMNS]], trim: usize) {
    let count = rows.len();
    for done in 0..trim {
        // What is largest among the rows not yet done moves to the last of them.
        for row in done..count - 1 - done {
            exchange(rows, row);
        }
        // And the smallest to the first.
        for row in (done..count - 2 - done).rev() {
            exchange(rows, row);
        }
    }
}

/// Puts the smaller value of each column into `row`, the larger into the next.
fn exchange(rows: &mut [[f32; COLUMNS]], row: usize) {
    if let [lower, upper] = &mut rows[row..row + 2] {
        for (lower, upper) in lower.iter_mut().zip(upper) {
            let (a, b) = (*lower, *upper);
            (*lower, *upper) = if b < a { (b, a) } else { (a, b) };
        }
    }
}

/// The mean of each column.
fn mean_of(rows: &[[f32; COLUMNS]], out: &mut [f32]) {
    let mut sums = [0.0; COLUMNS];
    for row in rows {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum += f64::from(value);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        *out = (sum / rows.len() as f64) as f32;
    }
}

/// See [`Aggregator::CentredClip`].
fn centred_clip(
    contributions: &[&[f32]],
    previous: Option<&[f32]>,
    radius: Option<f64>,
    iterations: u32,
) -> Result<Vec<f32>, AggregateError> {
    let length = contributions[0].len();
    if iterations == 0 {
        return Err(AggregateError::NoIterations);
    }
    if let Some(radius) = radius.filter(|radius| !(*radius > 0.0 && radius.is_finite())) {
        return Err(AggregateError::Radius(radius));
    }
    let mut centre = match previous {
        None => vec![0.0; length],
        Some(previous) if previous.len() == length => {
            previous.iter().map(|&value| f64::from(value)).collect()
        }
        Some(previous) => {
            let found = previous.len();
            return Err(AggregateError::Length {
                what: "previous update",
                index: 0,
                found,
                expected: length,
            });
        }
    };
    let radius = radius.unwrap_or_else(|| {
        median(&contributions.iter().map(|contribution| norm(contribution)).collect::<Vec<_>>())
    });
    for _ in 0..iterations {
        let factors: Vec<f64> = contributions
            .iter()
            .map(|contribution| shrink(distance(contribution, &centre), radius) / contributions.len() as f64)
            .collect();
        pieces(&mut centre, |start, centre| {
            let mut sums = vec![0.0; centre.len()];
            for (contribution, &factor) in contributions.iter().zip(&factors) {
                for ((sum, &value), centre) in sums.iter_mut().zip(&contribution[start..]).zip(&*centre) {
                    *sum += factor * (f64::from(value) - centre);
                }
            }
            centre.iter_mut().zip(sums).for_each(|(centre, sum)| *centre += sum);
        });
    }
    Ok(centre.into_iter().map(|value| value as f32).collect())
}

/// |values - centre|.
fn distance(values: &[f32], centre: &[f64]) -> f64 {
    let pieces = values.chunks(PIECE).zip(centre.chunks(PIECE)).collect();
    let squares = parallel::map(pieces, |(values, centre)| squared_distance(values, Some(centre)));
    libm::sqrt(squares.iter().sum())
}

/// |values - centre|^2, or |values|^2.
fn squared_distance(values: &[f32], centre: Option<&[f64]>) -> f64 {
    // Several sums at once, so that an addition need not wait for the one before.
    const LANES: usize = 8;
    let mut lanes = [0.0; LANES];
    match centre {
        None => {
            for chunk in values.chunks(LANES) {
                for (lane, &value) in lanes.iter_mut().zip(chunk) {
                    *lane += f64::from(value) * f64::from(value);
                }
            }
        }
        Some(centre) => {
            for (chunk, centre) in values.chunks(LANES).zip(centre.chunks(LANES)) {
                for ((lane, &value), centre) in lanes.iter_mut().zip(chunk).zip(centre) {
                    let difference = f64::from(value) - centre;
                    *lane += difference * difference;
                }
            }
        }
    }
    lanes.iter().sum()
}

/// Calls `work(first column, columns)` for pieces of `out`.
fn pieces<T: Send>(out: &mut [T], work: impl Fn(usize, &mut [T]) + Sync) {
    let pieces: Vec<_> = out.chunks_mut(PIECE).enumerate().collect();
    parallel::each(pieces, |(piece, out)| work(piece * PIECE, out));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers without a pattern, in [-1, 1).
    fn drawn(count: usize, length: usize) -> Vec<Vec<f32>> {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| (0..length).map(|_| next()).collect()).collect()
    }

    fn slices(contributions: &[Vec<f32>]) -> Vec<&[f32]> {
        contributions.iter().map(Vec::as_slice).collect()
    }

    const RULES: [Aggregator; 6] = [
        Aggregator::Mean,
        Aggregator::ClipToMedianNorm,
        Aggregator::TrimmedMean { trim: 2 },
        Aggregator::Median,
        Aggregator::CentredClip { radius: Some(1.5), iterations: 3 },
        Aggregator::CentredClip { radius: None, iterations: 3 },
    ];

    /// Against sorting each column, over lengths on both sides of the pieces.
    #[test]
    fn trimming_leaves_the_middle_of_every_column() {
        for (count, length) in [(1, 5), (2, 1), (5, 255), (6, 257), (9, 2 * PIECE + 3), (24, 300)] {
            let contributions = drawn(count, length);
            for trim in 0..=(count - 1) / 2 {
                let found =
                    aggregate(&Aggregator::TrimmedMean { trim: trim as u32 }, &slices(&contributions), None)
                        .unwrap();
                for (column, found) in found.iter().enumerate() {
                    let mut values: Vec<f32> = contributions.iter().map(|row| row[column]).collect();
                    values.sort_unstable_by(f32::total_cmp);
                    let kept = &values[trim..count - trim];
                    let mean = kept.iter().map(|&value| f64::from(value)).sum::<f64>() / kept.len() as f64;
                    assert!((f64::from(*found) - mean).abs() <= 1e-7, "{count} {trim} {column}");
                }
            }
        }
    }

    #[test]
    fn a_thin_round_is_trimmed_to_the_median() {
        for count in 1..=8 {
            let contributions = drawn(count, 50);
            let contributions = slices(&contributions);
            let median = aggregate(&Aggregator::Median, &contributions, None);
            assert_eq!(aggregate(&Aggregator::TrimmedMean { trim: 4 }, &contributions, None), median);
            assert_eq!(aggregate(&Aggregator::TrimmedMean { trim: u32::MAX }, &contributions, None), median);
        }
    }

    #[test]
    fn every_rule_returns_a_lone_or_repeated_contribution() {
        let one = drawn(1, 2 * PIECE + 1);
        let length = norm(&one[0]);
        for count in [1, 2, 5] {
            let contributions = vec![one[0].as_slice(); count];
            for mut rule in RULES {
                if let Aggregator::CentredClip { radius: radius @ Some(_), .. } = &mut rule {
                    *radius = Some(length * 2.0);
                }
                assert_eq!(aggregate(&rule, &contributions, None).unwrap(), one[0], "{rule:?}");
            }
            let weights = vec![0.3; count];
            assert_eq!(weighted_mean(&contributions, &weights).unwrap(), one[0]);
        }
    }

    #[test]
    fn zeros_give_zeros() {
        let zeros = vec![0.0; 20];
        for rule in RULES {
            assert_eq!(aggregate(&rule, &[&zeros, &zeros], None).unwrap(), zeros, "{rule:?}");
        }
    }

    /// One of five is a liar of any size; only the mean follows it.
    #[test]
    fn robust_rules_are_not_moved_far_by_one() {
        let mut contributions = vec![vec![1.0; 40]; 5];
        contributions[2] = vec![-1e30; 40];
        let contributions = slices(&contributions);
        assert!(aggregate(&Aggregator::Mean, &contributions, None).unwrap()[0] < -1e29);
        for rule in &RULES[1..] {
            let found = aggregate(rule, &contributions, None).unwrap();
            assert!(found.iter().all(|value| (0.0..=1.0).contains(value)), "{rule:?}: {found:?}");
        }
    }

    #[test]
    fn weights_count() {
        let found = weighted_mean(&[&[1.0, 0.0], &[4.0, 8.0]], &[2.0, 1.0]).unwrap();
        assert_eq!(found, [2.0, 8.0 / 3.0]);
        assert_eq!(weighted_mean(&[&[1.0], &[4.0]], &[0.0, 5.0]).unwrap(), [4.0]);
    }

    #[test]
    fn what_cannot_be_aggregated_is_named() {
        let ones = vec![1.0; 3];
        for rule in &RULES {
            assert_eq!(aggregate(rule, &[], None), Err(AggregateError::Nothing));
            let length = AggregateError::Length { what: "contribution", index: 1, found: 2, expected: 3 };
            assert_eq!(aggregate(rule, &[&ones, &[1.0; 2]], None), Err(length));
        }
        let clip = |radius, iterations, previous| {
            aggregate(&Aggregator::CentredClip { radius, iterations }, &[&ones], previous)
        };
        assert_eq!(clip(Some(1.0), 0, None), Err(AggregateError::NoIterations));
        assert_eq!(clip(Some(0.0), 1, None), Err(AggregateError::Radius(0.0)));
        assert!(matches!(clip(Some(f64::NAN), 1, None), Err(AggregateError::Radius(_))));
        let length = AggregateError::Length { what: "previous update", index: 0, found: 1, expected: 3 };
        assert_eq!(clip(None, 1, Some(&[0.0])), Err(length));

        assert_eq!(weighted_mean(&[], &[]), Err(AggregateError::Nothing));
        let count = AggregateError::Weights { weights: 2, contributions: 1 };
        assert_eq!(weighted_mean(&[&ones], &[1.0, 1.0]), Err(count));
        for bad in [-1.0, 0.0, f64::INFINITY] {
            let refused = AggregateError::Weight { index: 0, weight: bad };
            assert_eq!(weighted_mean(&[&ones], &[bad]), Err(refused));
        }
    }

    #[test]
    fn an_empty_vector_is_a_vector() {
        for rule in RULES {
            assert_eq!(aggregate(&rule, &[&[], &[]], None).unwrap(), Vec::<f32>::new());
        }
    }
}
