//! The charts in words.

use protocol::view::CurvePoint;

use super::{
    numbers::{NONE, count, loss, percent},
    scores,
};
use crate::state::scores::{Line, newest};

/// Step and loss of a measurement on held-out text.
type Measured = (u64, f64);

/// The newest point with a validation loss.
pub(crate) fn newest_validation<'a>(
    points: impl DoubleEndedIterator<Item = &'a CurvePoint>,
) -> Option<Measured> {
    points.rev().find_map(|point| point.validation_loss.map(|nats| (point.step, nats)))
}

/// A value at the step under the cursor, or an older one with its step.
pub(crate) fn value_at(step: u64, measured: Option<Measured>) -> String {
    match measured {
        Some((at, nats)) if at == step => loss(nats),
        Some((at, nats)) => format!("{} (step {})", loss(nats), count(at)),
        None => "not measured yet".to_owned(),
    }
}

/// Reads the curve of pipeline mode out.
pub(crate) fn losses(curve: &[CurvePoint]) -> String {
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else {
        return "Loss curve, empty so far".to_owned();
    };
    let validation = newest_validation(curve.iter()).map_or(String::new(), |(step, nats)| {
        format!("; validation loss {} at step {}", loss(nats), count(step))
    });
    format!(
        "Loss curve: training loss {} at step {}, {} at step {}{validation}",
        loss(first.train_loss),
        count(first.step),
        loss(last.train_loss),
        count(last.step)
    )
}

/// Reads the curves of block mode out.
pub(crate) fn cross_entropies(curve: &[CurvePoint], lines: &[Line]) -> String {
    let words = |line: &Line| {
        let (step, nats) = newest(*line, curve.iter())?;
        Some(format!("{} {} at local step {}", scores::line(*line), loss(nats), count(step)))
    };
    let words: Vec<String> = lines.iter().filter_map(words).collect();
    if words.is_empty() {
        "Curve of cross-entropies, empty so far".to_owned()
    } else {
        format!("Curve of cross-entropies: {}", words.join("; "))
    }
}

/// Reads the curve of participation out.
pub(crate) fn participation(curve: &[CurvePoint]) -> String {
    match curve.last().and_then(|point| point.participation) {
        Some(share) => format!("Participation per round; in the last one {}", percent(share)),
        None => "Participation per round, empty so far".to_owned(),
    }
}

/// Participation of a point.
pub(crate) fn participation_at(point: &CurvePoint) -> String {
    point.participation.map_or(NONE.to_owned(), percent)
}

pub(crate) const STEP: &str = "Step ";
pub(crate) const LOCAL_STEP: &str = "Local step ";
pub(crate) const TRAINING: &str = "Training ";
pub(crate) const VALIDATION: &str = "Validation ";
pub(crate) const PARTICIPATION: &str = "Participation ";
pub(crate) const EMPTY: &str = "The curve starts with the first finished step.";
pub(crate) const EMPTY_ROUNDS: &str = "The curve starts with the first finished round.";
pub(crate) const LINES: &str = "Lines in the chart";
pub(crate) const HOW_TO_READ: &str = "The first line is the headline: the prediction of all blocks in turn. Compare it with \
    the best block alone. Leaky lines see the answer through the noise: they say little about prediction, however low \
    they are.";
pub(crate) const AXIS_STEP: &str = "step";
pub(crate) const AXIS_LOCAL_STEPS: &str = "local steps of each block";
pub(crate) const AXIS_LOSS: &str = "loss, nats per token";
pub(crate) const AXIS_NATS: &str = "nats per token";
pub(crate) const AXIS_IN_TIME: &str = "in time, %";
