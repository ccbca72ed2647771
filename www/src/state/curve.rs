//! The learning curve as the page keeps it: points sorted by step, current after a roll-back, fetched no more than
//! needed.

use protocol::view::{CurvePoint, RunView};

use super::facts::stride;

/// Takes in what the event stream brings, in its order. A step that the curve has passed already means that the run
/// has gone back: what the curve has from there on no longer holds.
pub(crate) fn follow(curve: &mut Vec<CurvePoint>, points: Vec<CurvePoint>) {
    for point in points {
        curve.truncate(curve.partition_point(|known| known.step < point.step));
        curve.push(point);
    }
}

/// Takes in all points after step `after`, as the coordinator has just listed them, then those that the stream brought
/// meanwhile.
pub(crate) fn replace_after(
    curve: &mut Vec<CurvePoint>,
    after: u64,
    listed: Vec<CurvePoint>,
    meanwhile: Vec<CurvePoint>,
) {
    curve.truncate(curve.partition_point(|known| known.step <= after));
    curve.extend(listed.into_iter().filter(|point| point.step > after));
    for point in meanwhile {
        match curve.binary_search_by_key(&point.step, |known| known.step) {
            Ok(at) => curve[at] = point,
            Err(at) => curve.insert(at, point),
        }
    }
}

/// Cuts off what was rolled back, when a newer view of the run has seen fewer steps than the one before. Says whether
/// anything was cut.
pub(crate) fn cut_rolled_back(curve: &mut Vec<CurvePoint>, before: &RunView, now: &RunView) -> bool {
    let length = curve.len();
    if now.step < before.step {
        curve.truncate(curve.partition_point(|known| known.step <= now.step));
    }
    curve.len() < length
}

/// Whether points are missing between the curve and these: the stream drops some for a page that is too slow. Steps
/// are `stride` apart: 1, or the local steps of a round, of which some bring no point.
pub(crate) fn is_beyond(curve: &[CurvePoint], points: &[CurvePoint], stride: u64) -> bool {
    let last = curve.last().map_or(0, |last| last.step);
    points.first().is_some_and(|first| first.step > last + stride)
}

/// The step after which the curve must be fetched when the page listens again. While the plan is the same, or the
/// rounds have gone on, nothing was rolled back and what is known holds; after anything else all is fetched.
pub(crate) fn known_up_to(curve: &[CurvePoint], before: Option<&RunView>, now: &RunView) -> u64 {
    let last = curve.last().map_or(0, |last| last.step);
    let same = before.is_some_and(|before| {
        let goes_on = if stride(now) == 1 { now.epoch == before.epoch } else { now.epoch >= before.epoch };
        before.run == now.run && goes_on && now.step >= before.step
    });
    if same && last <= now.step { last } else { 0 }
}

/// The losses without most of their jitter: each the mean of its neighbours, as many on either side. A mean
/// over the past alone would lag behind a falling curve.
pub(crate) fn smooth(losses: &[f64], reach: usize) -> Vec<f64> {
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
    use protocol::view::Phase;

    use super::*;
    use crate::state::fixtures::{blocks, pipeline, point};

    fn steps(curve: &[CurvePoint]) -> Vec<u64> {
        curve.iter().map(|point| point.step).collect()
    }

    #[test]
    fn steps_done_again_cut_off_what_was_rolled_back() {
        let mut curve = vec![point(1, 5.0), point(2, 4.0), point(3, 3.0), point(4, 2.0)];
        follow(&mut curve, vec![point(2, 4.5)]);
        let losses: Vec<_> = curve.iter().map(|point| (point.step, point.train_loss)).collect();
        assert_eq!(losses, [(1, 5.0), (2, 4.5)]);
        follow(&mut curve, vec![point(3, 3.5), point(5, 3.0)]);
        assert_eq!(steps(&curve), [1, 2, 3, 5]);
    }

    #[test]
    fn a_view_that_has_seen_fewer_steps_cuts_the_curve() {
        let mut curve = vec![point(587, 2.0), point(588, 2.0)];
        let (mut before, mut now) = (pipeline(Phase::Training), pipeline(Phase::Loading));
        // The stream of points may be ahead of the views; that alone is no roll-back.
        (before.step, now.step) = (586, 587);
        assert!(!cut_rolled_back(&mut curve, &before, &now));
        (before.step, now.step) = (588, 580);
        assert!(cut_rolled_back(&mut curve, &before, &now));
        assert!(steps(&curve).is_empty());
    }

    #[test]
    fn a_list_replaces_and_the_stream_adds() {
        let mut curve = vec![point(1, 5.0), point(2, 4.0), point(9, 1.0)];
        let listed = vec![point(3, 3.0), point(4, 2.5)];
        replace_after(&mut curve, 2, listed, vec![point(4, 2.6), point(5, 2.0)]);
        let losses: Vec<_> = curve.iter().map(|point| (point.step, point.train_loss)).collect();
        assert_eq!(losses, [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.6), (5, 2.0)]);
        replace_after(&mut curve, 0, vec![point(1, 9.0)], vec![]);
        assert_eq!(steps(&curve), [1]);
    }

    #[test]
    fn gaps_are_seen_in_steps_of_any_stride() {
        let curve = [point(10, 5.0), point(20, 4.0)];
        assert!(!is_beyond(&curve, &[point(30, 3.0)], 10));
        assert!(!is_beyond(&curve, &[point(20, 3.0)], 10));
        assert!(is_beyond(&curve, &[point(40, 3.0)], 10));
        assert!(is_beyond(&curve, &[point(22, 3.0)], 1));
        assert!(!is_beyond(&curve, &[point(21, 3.0)], 1));
        assert!(is_beyond(&[], &[point(2, 3.0)], 1));
        assert!(!is_beyond(&curve, &[], 1));
    }

    #[test]
    fn only_what_is_new_is_fetched_again() {
        let curve = [point(10, 5.0), point(20, 4.0)];
        let at = |mut run: RunView, epoch, step| {
            (run.epoch, run.step) = (epoch, step);
            run
        };
        let known = |before: &RunView, now: &RunView| known_up_to(&curve, Some(before), now);
        let (line, rounds) = (pipeline(Phase::Training), blocks(Phase::Training));
        assert_eq!(known_up_to(&curve, None, &line), 0);
        assert_eq!(known(&at(line.clone(), 1, 20), &at(line.clone(), 1, 50)), 20);
        assert_eq!(known(&at(line.clone(), 1, 20), &at(line.clone(), 2, 50)), 0, "another plan");
        assert_eq!(known(&at(rounds.clone(), 2, 20), &at(rounds.clone(), 7, 70)), 20);
        assert_eq!(known(&at(rounds.clone(), 2, 20), &at(rounds.clone(), 1, 10)), 0, "restarted");
        assert_eq!(known(&at(line, 1, 20), &at(rounds, 1, 20)), 0, "another run");
    }

    #[test]
    fn smoothing_does_not_lag() {
        assert!(smooth(&[], 3).is_empty());
        assert_eq!(smooth(&[4.0], 3), [4.0]);
        assert_eq!(smooth(&[5.0, 4.0, 3.0, 2.0], 9), [5.0, 4.0, 3.0, 2.0]);
        assert_eq!(smooth(&[3.0, 6.0, 3.0], 1), [3.0, 4.0, 3.0]);
    }
}
