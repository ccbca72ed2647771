//! What a chart shows: its lines and its axes.

use leptos::prelude::*;

use crate::{state::scores::Line, text::chart as text};

/// What is drawn.
#[derive(Clone, Copy)]
pub(crate) enum Subject {
    /// Losses of pipeline mode.
    Losses,
    /// Cross-entropies of block mode, those that are chosen.
    Scores(RwSignal<Vec<Line>>),
    /// Participation in block mode.
    Participation,
}

/// How a line looks.
pub(crate) struct Stroke {
    /// Its key in the style sheet.
    pub(crate) colour: &'static str,
    /// In CSS pixels.
    pub(crate) width: u32,
    /// Whether each value is marked.
    pub(crate) points: bool,
}

/// The lines and axes of a chart.
pub(crate) struct Figure {
    pub(crate) lines: Vec<Stroke>,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// Ends of the vertical axis; None: as the numbers need.
    pub(crate) range: Option<[f64; 2]>,
}

impl Subject {
    /// How it looks.
    pub(crate) fn figure(self) -> Figure {
        let stroke = |colour, width, points| Stroke { colour, width, points };
        match self {
            Subject::Losses => Figure {
                lines: vec![
                    stroke("jitter", 1, false),
                    stroke("training", 2, false),
                    stroke("validation", 2, true),
                ],
                x: text::AXIS_STEP,
                y: text::AXIS_LOSS,
                range: None,
            },
            Subject::Scores(lines) => {
                let line = |line: Line| {
                    stroke(line.key(), if line == Line::OneDraw { 3 } else { 2 }, line != Line::Training)
                };
                Figure {
                    lines: lines.get_untracked().into_iter().map(line).collect(),
                    x: text::AXIS_LOCAL_STEPS,
                    y: text::AXIS_NATS,
                    range: None,
                }
            }
            Subject::Participation => Figure {
                lines: vec![stroke("participation", 2, false)],
                x: text::AXIS_LOCAL_STEPS,
                y: text::AXIS_IN_TIME,
                range: Some([0.0, 105.0]),
            },
        }
    }
}
