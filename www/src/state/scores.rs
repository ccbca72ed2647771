//! The scores of block mode as numbers: the lines of the chart, and what the newest evaluation says. Nats per token.

use protocol::{evaluation::Scores, view::CurvePoint};

/// A difference that is more than the jitter of one evaluation, in nats.
const MATTERS: f64 = 0.02;

/// A line of the chart of cross-entropies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    OneDraw,
    ManyDraws,
    FromZero,
    BestAlone,
    Local,
    Scrambled,
    Training,
}

impl Line {
    /// All, in the order in which they are listed.
    pub(crate) const ALL: [Line; 7] = [
        Line::OneDraw,
        Line::ManyDraws,
        Line::FromZero,
        Line::BestAlone,
        Line::Local,
        Line::Scrambled,
        Line::Training,
    ];

    /// Drawn before anybody has chosen: the headline and what it must be compared with.
    pub(crate) const FIRST: [Line; 3] = [Line::OneDraw, Line::BestAlone, Line::Scrambled];

    /// Key in the style sheet and for tests.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Line::OneDraw => "one-draw",
            Line::ManyDraws => "many-draws",
            Line::FromZero => "from-zero",
            Line::BestAlone => "best-alone",
            Line::Local => "local",
            Line::Scrambled => "scrambled",
            Line::Training => "in-training",
        }
    }

    /// In nats per token, where it was measured.
    pub(crate) fn value(self, point: &CurvePoint) -> Option<f64> {
        if self == Line::Training {
            return Some(point.train_loss);
        }
        let scores = point.evaluation.as_ref()?;
        match self {
            Line::OneDraw | Line::Training => Some(scores.one_draw),
            Line::ManyDraws => Some(scores.many_draws),
            Line::FromZero => Some(scores.from_zero),
            Line::BestAlone => best(&scores.alone),
            Line::Local => mean(&scores.local),
            Line::Scrambled => mean(&scores.scrambled),
        }
    }
}

fn best(list: &[f64]) -> Option<f64> {
    list.iter().copied().reduce(f64::min)
}

fn mean(list: &[f64]) -> Option<f64> {
    (!list.is_empty()).then(|| list.iter().sum::<f64>() / list.len() as f64)
}

/// The newest point that has a value, and it.
pub(crate) fn newest<'a>(
    line: Line,
    points: impl DoubleEndedIterator<Item = &'a CurvePoint>,
) -> Option<(u64, f64)> {
    points.rev().find_map(|point| line.value(point).map(|nats| (point.step, nats)))
}

/// What the newest scores say about the headline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    /// Nats by which all blocks in turn do better than the best block alone: below 0 when they do worse, None when
    /// the difference is within the jitter.
    pub(crate) chain: Option<f64>,
    /// Nats that the right context is worth to a block; None when it is within the jitter.
    pub(crate) context: Option<f64>,
}

/// Compares the headline with its controls; None while there are no scores of blocks.
pub(crate) fn verdict(scores: &Scores) -> Option<Verdict> {
    let (alone, local, scrambled) = (best(&scores.alone)?, mean(&scores.local)?, mean(&scores.scrambled)?);
    let chain = alone - scores.one_draw;
    let context = scrambled - local;
    Some(Verdict {
        chain: (chain.abs() > MATTERS).then_some(chain),
        context: (context > MATTERS).then_some(context),
    })
}

#[cfg(test)]
pub(crate) fn example() -> Scores {
    Scores {
        one_draw: 2.5,
        draws: 8,
        many_draws: 2.25,
        from_zero: 2.75,
        chain: vec![3.0, 2.75, 2.5],
        alone: vec![2.875, 3.0, 4.0],
        local: vec![2.0, 1.0, 0.75],
        scrambled: vec![3.0, 1.5, 0.75],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::fixtures::point;

    fn measured(step: u64, evaluation: Scores) -> CurvePoint {
        CurvePoint { evaluation: Some(evaluation), ..point(step, 1.5) }
    }

    #[test]
    fn lines_read_the_scores() {
        let measured_point = measured(40, example());
        let values: Vec<f64> = Line::ALL.iter().map(|line| line.value(&measured_point).unwrap()).collect();
        assert_eq!(values, [2.5, 2.25, 2.75, 2.875, 1.25, 1.75, 1.5]);
        let between = point(50, 1.5);
        assert_eq!(Line::OneDraw.value(&between), None);
        assert_eq!(Line::Training.value(&between), Some(1.5));
        assert_eq!(Line::BestAlone.value(&measured(1, Scores::default())), None);
        let points = [measured_point, between];
        assert_eq!(newest(Line::OneDraw, points.iter()), Some((40, 2.5)));
        assert_eq!(newest(Line::Training, points.iter()), Some((50, 1.5)));
        assert_eq!(newest(Line::Local, [].iter()), None);
    }

    #[test]
    fn the_verdict_compares_with_the_controls() {
        assert_eq!(verdict(&example()), Some(Verdict { chain: Some(0.375), context: Some(0.5) }));
        let jitter = Scores { one_draw: 2.89, scrambled: example().local, ..example() };
        assert_eq!(verdict(&jitter), Some(Verdict { chain: None, context: None }));
        let worse = Scores { one_draw: 3.875, ..example() };
        assert_eq!(verdict(&worse).unwrap().chain, Some(-1.0));
        assert_eq!(verdict(&Scores::default()), None);
    }
}
