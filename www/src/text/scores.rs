//! The scores of block mode in words: the lines of the chart, and a table with a sentence for each.

use protocol::evaluation::Scores;

use super::numbers::{loss, plural};
use crate::state::scores::{Line, Verdict};

/// The name of a line of the chart.
pub(crate) fn line(line: Line) -> &'static str {
    match line {
        Line::OneDraw => "From noise, one draw",
        Line::ManyDraws => "From noise, mean of several draws",
        Line::FromZero => "From zero",
        Line::BestAlone => "Best block alone",
        Line::Local => "Local (leaky)",
        Line::Scrambled => "Local, wrong context (leaky)",
        Line::Training => "Local, in training (leaky)",
    }
}

/// A row of the table of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// One number, or one per block.
    pub(crate) values: Vec<String>,
    /// Whether the values are one per block.
    pub(crate) by_block: bool,
    /// Whether the model sees the answer through the noise.
    pub(crate) leaky: bool,
    pub(crate) meaning: String,
}

/// Everything that was measured, with what it means.
pub(crate) fn rows(scores: &Scores) -> Vec<Row> {
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
            "The headline: all blocks in turn, from one draw of noise that contains nothing of the answer.",
        ),
        one(
            &format!("From noise, mean of {} draws", scores.draws),
            scores.many_draws,
            "The probabilities of several draws, averaged: the difference to the row above is the variance of a draw.",
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
            "The prediction after each block: numbers that do not fall mean blocks that do not help.",
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
            "As in training: the block sees the answer through the noise, so this says little about prediction.",
        ),
        each(
            "Local, wrong context",
            &scores.scrambled,
            true,
            "The same with another text before it: the difference to the row above is what the right text is worth to a block.",
        ),
    ]
}

/// What the newest numbers say about the headline.
pub(crate) fn verdict(verdict: Verdict) -> String {
    let chain = match verdict.chain {
        Some(gain) if gain > 0.0 => {
            format!("All blocks in turn are better than the best block alone, by {} nats.", loss(gain))
        }
        Some(loss_of_chain) => format!(
            "The best block alone is better than all blocks in turn, by {} nats: the chain does not help yet.",
            loss(-loss_of_chain)
        ),
        None => "All blocks in turn are no better than the best block alone: the chain does not help yet."
            .to_owned(),
    };
    let context = match verdict.context {
        Some(gain) => format!("The right context is worth {} nats to a block: it uses the text.", loss(gain)),
        None => "A block does as well with the wrong context: it does not use the text yet.".to_owned(),
    };
    format!("{chain} {context}")
}

/// When the newest evaluation was, and how to read it.
pub(crate) fn when(rounds: Option<u64>) -> String {
    match rounds {
        Some(rounds) => format!(
            "Evaluated after {} on held-out text, in nats per token: lower is better. The headline alone could mislead, so \
             it is shown with everything that it must be compared with.",
            plural(rounds, "round", "rounds")
        ),
        None => "The model has not been evaluated yet.".to_owned(),
    }
}

pub(crate) const TITLE: &str = "Evaluation";
pub(crate) const MEASURED: &str = "Measured";
pub(crate) const UNIT: &str = "Nats per token";
pub(crate) const MEANING: &str = "What it means";
pub(crate) const LEAKY: &str = "leaky: sees the answer through the noise";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::scores::{example, verdict as compare};

    #[test]
    fn leaks_are_labelled() {
        for each in Line::ALL {
            let leaky = matches!(each, Line::Local | Line::Scrambled | Line::Training);
            assert_eq!(leaky, line(each).contains("leaky"), "{}", line(each));
        }
        let leaky: Vec<bool> = rows(&example()).iter().map(|row| row.leaky).collect();
        assert_eq!(leaky, [false, false, false, false, false, true, true]);
        assert!(!Line::FIRST.contains(&Line::Local), "leaky numbers alone would look like success");
    }

    #[test]
    fn rows_have_all_scores() {
        let rows = rows(&example());
        let values: Vec<&str> = rows.iter().flat_map(|row| &row.values).map(String::as_str).collect();
        assert_eq!(
            values,
            [
                "2.500", "2.250", "2.750", "3.000", "2.750", "2.500", "2.875", "3.000", "4.000", "2.000",
                "1.000", "0.750", "3.000", "1.500", "0.750"
            ]
        );
        assert_eq!(rows[1].name, "From noise, mean of 8 draws");
    }

    #[test]
    fn the_verdict_is_honest() {
        let said = |scores: &Scores| verdict(compare(scores).unwrap());
        let good = said(&example());
        assert!(good.contains("better than the best block alone, by 0.375 nats"), "{good}");
        assert!(good.contains("worth 0.500 nats"), "{good}");
        let jitter = said(&Scores { one_draw: 2.89, scrambled: example().local, ..example() });
        assert!(jitter.contains("no better than the best block alone"), "{jitter}");
        assert!(jitter.contains("does not use the text"), "{jitter}");
        let worse = said(&Scores { one_draw: 3.875, ..example() });
        assert!(worse.contains("better than all blocks in turn, by 1.000"), "{worse}");
    }
}
