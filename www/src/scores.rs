//! The scores of block mode: as lines of a chart, and as a table with a sentence for each. No browser in here.

use protocol::{evaluation::Scores, view::CurvePoint};

use crate::format::loss;

/// A line of the chart of cross-entropies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    OneDraw,
    ManyDraws,
    FromZero,
    BestAlone,
    Local,
    Scrambled,
    Training,
}

impl Line {
    pub const ALL: [Line; 7] = [
        Line::OneDraw,
        Line::ManyDraws,
        Line::FromZero,
        Line::BestAlone,
        Line::Local,
        Line::Scrambled,
        Line::Training,
    ];

    /// Drawn before anybody has chosen: the headline and what it must be held against.
    pub const FIRST: [Line; 3] = [Line::OneDraw, Line::BestAlone, Line::Scrambled];

    /// Key in the style sheet and for tests.
    pub fn key(self) -> &'static str {
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

    pub fn name(self) -> &'static str {
        match self {
            Line::OneDraw => "From noise, one draw",
            Line::ManyDraws => "From noise, several draws averaged",
            Line::FromZero => "From zero",
            Line::BestAlone => "Best block alone",
            Line::Local => "Local (leaky)",
            Line::Scrambled => "Local, wrong context (leaky)",
            Line::Training => "Local, in training (leaky)",
        }
    }

    /// In nats per token, where it was measured.
    pub fn value(self, point: &CurvePoint) -> Option<f64> {
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
pub fn newest<'a>(line: Line, points: impl DoubleEndedIterator<Item = &'a CurvePoint>) -> Option<(u64, f64)> {
    points.rev().find_map(|point| line.value(point).map(|nats| (point.step, nats)))
}

/// A row of the table of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub name: String,
    /// One number, or one per block.
    pub values: Vec<String>,
    /// Whether the values are one per block.
    pub by_block: bool,
    pub leaky: bool,
    pub meaning: String,
}

/// Everything that was measured, with what it means.
pub fn rows(scores: &Scores) -> Vec<Row> {
    let one = |name: &str, value: f64, meaning: &str| Row {
        name: name.to_owned(),
        values: vec![loss(value)],
        by_block: false,
        leaky: false,
        meaning: meaning.to_owned(),
    };
    let each = |name: &str, values: &[f64], leaky: bool, meaning: &str| Row {
        name: name.to_owned(),
        values: values.iter().copied().map(loss).collect(),
        by_block: true,
        leaky,
        meaning: meaning.to_owned(),
    };
    vec![
        one(
            "From noise, one draw",
            scores.one_draw,
            "The headline: all blocks in turn, from one draw of noise that knows nothing of the answer.",
        ),
        one(
            &format!("From noise, {} draws averaged", scores.draws),
            scores.many_draws,
            "What luck with the draw costs: the guesses from several draws, averaged.",
        ),
        one(
            "From zero",
            scores.from_zero,
            "The start without any noise: when this is as good, the noise adds nothing.",
        ),
        each(
            "The chain, after each block",
            &scores.chain,
            false,
            "How far the guess has come after each block: numbers that do not fall mean blocks that do not help.",
        ),
        each(
            "Each block alone",
            &scores.alone,
            false,
            "One block without the others: when the best is as good as the headline, the chain is not needed.",
        ),
        each(
            "Local",
            &scores.local,
            true,
            "As in training: the block sees the answer through the noise, so this says little about guessing.",
        ),
        each(
            "Local, wrong context",
            &scores.scrambled,
            true,
            "The same with another text before it: the gap to the row above is what reading the text is worth to a block.",
        ),
    ]
}

/// What the newest numbers say about the headline, in a sentence or two.
pub fn verdict(scores: &Scores) -> Option<String> {
    let (alone, local, scrambled) = (best(&scores.alone)?, mean(&scores.local)?, mean(&scores.scrambled)?);
    let chain = match scores.one_draw - alone {
        gap if gap < -MATTERS => format!(
            "The blocks together beat the best block alone by {} nats: working in turn pays.",
            loss(-gap)
        ),
        gap if gap > MATTERS => format!(
            "The best block alone does better than all in turn, by {} nats: the chain does not pay yet.",
            loss(gap)
        ),
        _ => "All blocks in turn do no better than the best block alone: the chain does not pay yet."
            .to_owned(),
    };
    let context = scrambled - local;
    let reading = if context > MATTERS {
        format!("The right context is worth {} nats to a block: it reads the text.", loss(context))
    } else {
        "A block does as well with the wrong context: so far it does not read the text.".to_owned()
    };
    Some(format!("{chain} {reading}"))
}

/// Nats that are more than the jitter of one evaluation.
const MATTERS: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    fn scores() -> Scores {
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

    fn point(step: u64, evaluation: Option<Scores>) -> CurvePoint {
        CurvePoint {
            step,
            train_loss: 1.5,
            validation_loss: evaluation.as_ref().map(|scores| scores.one_draw),
            learning_rate: 0.1,
            tokens_per_second: 1.0,
            evaluation,
            participation: Some(1.0),
        }
    }

    #[test]
    fn lines_read_the_scores() {
        let measured = point(40, Some(scores()));
        let values: Vec<f64> = Line::ALL.iter().map(|line| line.value(&measured).unwrap()).collect();
        assert_eq!(values, [2.5, 2.25, 2.75, 2.875, 1.25, 1.75, 1.5]);
        let between = point(50, None);
        assert_eq!(Line::OneDraw.value(&between), None);
        assert_eq!(Line::Training.value(&between), Some(1.5));
        assert_eq!(Line::BestAlone.value(&point(1, Some(Scores::default()))), None);
        let points = [measured, between];
        assert_eq!(newest(Line::OneDraw, points.iter()), Some((40, 2.5)));
        assert_eq!(newest(Line::Training, points.iter()), Some((50, 1.5)));
        assert_eq!(newest(Line::Local, [].iter()), None);
    }

    #[test]
    fn leaks_are_labelled() {
        for line in Line::ALL {
            let leaky = matches!(line, Line::Local | Line::Scrambled | Line::Training);
            assert_eq!(leaky, line.name().contains("leaky"), "{}", line.name());
        }
        let leaky: Vec<bool> = rows(&scores()).iter().map(|row| row.leaky).collect();
        assert_eq!(leaky, [false, false, false, false, false, true, true]);
        assert!(!Line::FIRST.contains(&Line::Local), "leaky numbers alone would look like success");
    }

    #[test]
    fn rows_have_all_scores() {
        let rows = rows(&scores());
        let values: Vec<&str> = rows.iter().flat_map(|row| &row.values).map(String::as_str).collect();
        assert_eq!(
            values,
            [
                "2.500", "2.250", "2.750", "3.000", "2.750", "2.500", "2.875", "3.000", "4.000", "2.000",
                "1.000", "0.750", "3.000", "1.500", "0.750"
            ]
        );
        assert_eq!(rows[1].name, "From noise, 8 draws averaged");
    }

    #[test]
    fn the_verdict_is_honest() {
        let said = verdict(&scores()).unwrap();
        assert!(said.contains("beat the best block alone by 0.375 nats"), "{said}");
        assert!(said.contains("worth 0.500 nats"), "{said}");
        let worse = Scores { one_draw: 2.89, scrambled: scores().local, ..scores() };
        let said = verdict(&worse).unwrap();
        assert!(said.contains("no better than the best block alone"), "{said}");
        assert!(said.contains("does not read the text"), "{said}");
        let bad = verdict(&Scores { one_draw: 3.875, ..scores() }).unwrap();
        assert!(bad.contains("better than all in turn, by 1.000"), "{bad}");
        assert_eq!(verdict(&Scores::default()), None);
    }
}
