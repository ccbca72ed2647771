//! The numbers of a chart, as uPlot wants them: a column for each line.

use js_sys::{Array, Float64Array};
use leptos::prelude::GetUntracked;
use protocol::view::CurvePoint;
use wasm_bindgen::JsValue;

use super::figure::Subject;
use crate::state::curve::smooth;

/// Points on either side that the bold line is the mean of, as a share of the curve and at most.
const SMOOTH_SHARE: usize = 60;
const SMOOTH_MOST: usize = 40;

/// Beyond this many points the curve has more of them than the screen has pixels, and drawing gets slow.
const MOST_POINTS: usize = 4000;

impl Subject {
    /// Its columns for uPlot: the steps, then the values of each line.
    pub(crate) fn data(self, points: &[&CurvePoint]) -> Array {
        match self {
            Subject::Losses => losses(points),
            Subject::Scores(lines) => {
                let values: Vec<_> = lines
                    .get_untracked()
                    .into_iter()
                    .map(|line| move |point: &CurvePoint| line.value(point))
                    .collect();
                let values: Vec<Value<'_>> = values.iter().map(|value| value as Value<'_>).collect();
                columns(points, &values)
            }
            Subject::Participation => {
                columns(points, &[&|point| point.participation.map(|share| 100.0 * share)])
            }
        }
    }
}

/// The points that are drawn: all, or an even choice that keeps every measured validation and the end.
pub(crate) fn drawn(curve: &[CurvePoint]) -> Vec<&CurvePoint> {
    let stride = curve.len().div_ceil(MOST_POINTS).max(1);
    let last = curve.len().saturating_sub(1);
    let chosen = curve.iter().enumerate();
    chosen
        .filter(|(i, p)| i % stride == 0 || *i == last || p.validation_loss.is_some())
        .map(|(_, p)| p)
        .collect()
}

/// The columns of pipeline mode: every step's loss, their trend, and what was measured on text held back.
fn losses(points: &[&CurvePoint]) -> Array {
    let losses: Vec<f64> = points.iter().map(|point| point.train_loss).collect();
    let smoothed = smooth(&losses, (points.len() / SMOOTH_SHARE).min(SMOOTH_MOST));
    Array::of4(
        &steps(points),
        &Float64Array::from(losses.as_slice()),
        &Float64Array::from(smoothed.as_slice()),
        &column(points, |point| point.validation_loss),
    )
}

/// The value of a line at a point, where it has one.
type Value<'a> = &'a dyn Fn(&CurvePoint) -> Option<f64>;

/// The steps, then a column for each line.
fn columns(points: &[&CurvePoint], lines: &[Value<'_>]) -> Array {
    let data = Array::of1(&steps(points));
    for line in lines {
        data.push(&column(points, line));
    }
    data
}

fn steps(points: &[&CurvePoint]) -> Float64Array {
    let steps: Vec<f64> = points.iter().map(|point| point.step as f64).collect();
    Float64Array::from(steps.as_slice())
}

fn column(points: &[&CurvePoint], value: impl Fn(&CurvePoint) -> Option<f64>) -> Array {
    points.iter().map(|point| value(point).map_or(JsValue::NULL, JsValue::from_f64)).collect()
}
