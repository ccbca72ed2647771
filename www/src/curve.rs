//! The learning curve as the page keeps it. No browser in here.

use protocol::view::CurvePoint;

/// Puts new points into a curve that is sorted by step. A step that is already there is replaced: after a
/// fault the run goes back to a snapshot and does some steps again.
pub fn merge(curve: &mut Vec<CurvePoint>, points: Vec<CurvePoint>) {
    for point in points {
        match curve.binary_search_by_key(&point.step, |known| known.step) {
            Ok(at) => curve[at] = point,
            Err(at) => curve.insert(at, point),
        }
    }
}

/// Whether points are missing between the curve and these: the stream drops some for a page that is too slow.
pub fn is_beyond(curve: &[CurvePoint], points: &[CurvePoint]) -> bool {
    let next = curve.last().map_or(1, |last| last.step + 1);
    points.first().is_some_and(|first| first.step > next)
}

/// The losses without most of their jitter: each the mean of its neighbours, as many on either side. A mean
/// over the past alone would lag behind a falling curve.
pub fn smooth(losses: &[f64], reach: usize) -> Vec<f64> {
    let mut sums = Vec::with_capacity(losses.len() + 1);
    let mut sum = 0.0;
    sums.push(sum);
    for loss in losses {
        sum += loss;
        sums.push(sum);
    }
    (0..losses.len())
        .map(|at| {
            let reach = reach.min(at).min(losses.len() - 1 - at);
            (sums[at + reach + 1] - sums[at - reach]) / (2 * reach + 1) as f64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u64, train_loss: f64) -> CurvePoint {
        CurvePoint {
            step,
            train_loss,
            validation_loss: None,
            learning_rate: 0.1,
            tokens_per_second: 1.0,
            evaluation: None,
            participation: None,
        }
    }

    #[test]
    fn steps_done_again_replace_the_old_ones() {
        let mut curve = vec![point(1, 5.0), point(2, 4.0), point(3, 3.0)];
        merge(&mut curve, vec![point(2, 4.5), point(5, 2.0), point(4, 2.5)]);
        let losses: Vec<_> = curve.iter().map(|point| (point.step, point.train_loss)).collect();
        assert_eq!(losses, [(1, 5.0), (2, 4.5), (3, 3.0), (4, 2.5), (5, 2.0)]);
    }

    #[test]
    fn gaps_are_seen() {
        let curve = [point(1, 5.0), point(2, 4.0)];
        assert!(!is_beyond(&curve, &[point(3, 3.0), point(4, 3.0)]));
        assert!(!is_beyond(&curve, &[point(2, 3.0)]));
        assert!(is_beyond(&curve, &[point(4, 3.0)]));
        assert!(is_beyond(&[], &[point(2, 3.0)]));
        assert!(!is_beyond(&curve, &[]));
    }

    #[test]
    fn smoothing_does_not_lag() {
        assert_eq!(smooth(&[], 3), []);
        assert_eq!(smooth(&[4.0], 3), [4.0]);
        assert_eq!(smooth(&[5.0, 4.0, 3.0, 2.0], 9), [5.0, 4.0, 3.0, 2.0]);
        assert_eq!(smooth(&[3.0, 6.0, 3.0], 1), [3.0, 4.0, 3.0]);
    }
}
