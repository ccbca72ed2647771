//! What a chart shows: its lines, its axes, and where their numbers come from.

use js_sys::Array;
use leptos::prelude::*;
use protocol::view::CurvePoint;

use super::options;
use crate::scores::Line;

#[derive(Clone, Copy)]
pub enum Subject {
    /// Losses of pipeline mode.
    Losses,
    /// Cross-entropies of block mode, those that are chosen.
    Scores(RwSignal<Vec<Line>>),
    /// Participation in block mode.
    Participation,
}

/// How a line looks.
pub struct Stroke {
    /// Its key in the style sheet.
    pub colour: &'static str,
    pub width: u32,
    pub points: bool,
}

pub struct Figure {
    pub lines: Vec<Stroke>,
    pub x: &'static str,
    pub y: &'static str,
    /// Ends of the vertical axis; None: as the numbers need.
    pub range: Option<[f64; 2]>,
}

const LOCAL_STEPS: &str = "local steps of each block";

impl Subject {
    pub fn figure(self) -> Figure {
        let stroke = |colour, width, points| Stroke { colour, width, points };
        match self {
            Subject::Losses => Figure {
                lines: vec![
                    stroke("jitter", 1, false),
                    stroke("training", 2, false),
                    stroke("validation", 2, true),
                ],
                x: "step",
                y: "loss, nats per token",
                range: None,
            },
            Subject::Scores(lines) => {
                let line = |line: Line| {
                    stroke(line.key(), if line == Line::OneDraw { 3 } else { 2 }, line != Line::Training)
                };
                Figure {
                    lines: lines.get_untracked().into_iter().map(line).collect(),
                    x: LOCAL_STEPS,
                    y: "nats per token",
                    range: None,
                }
            }
            Subject::Participation => Figure {
                lines: vec![stroke("participation", 2, false)],
                x: LOCAL_STEPS,
                y: "in time, %",
                range: Some([0.0, 105.0]),
            },
        }
    }

    pub fn data(self, points: &[&CurvePoint]) -> Array {
        match self {
            Subject::Losses => options::losses(points),
            Subject::Scores(lines) => {
                let values: Vec<_> = lines
                    .get_untracked()
                    .into_iter()
                    .map(|line| move |point: &CurvePoint| line.value(point))
                    .collect();
                let values: Vec<&dyn Fn(&CurvePoint) -> Option<f64>> =
                    values.iter().map(|value| value as &dyn Fn(&CurvePoint) -> Option<f64>).collect();
                options::columns(points, &values)
            }
            Subject::Participation => {
                options::columns(points, &[&|point| point.participation.map(|share| 100.0 * share)])
            }
        }
    }
}
