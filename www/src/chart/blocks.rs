//! The curves of block mode: cross-entropies that can be switched on and off, and participation.

use leptos::prelude::*;
use protocol::view::CurvePoint;

use super::{Chart, figure::Subject};
use crate::{
    format::{count, loss, percent},
    live::Live,
    scores::{Line, newest},
};

#[component]
pub fn ScoreCurve() -> impl IntoView {
    let live = expect_context::<Live>();
    let lines = RwSignal::new(Line::FIRST.to_vec());
    let chart = Chart::new(Subject::Scores(lines));
    let is_empty = move || live.curve.with(Vec::is_empty);
    let read = move || {
        let shown = lines.get();
        chart.up_to_cursor(|points| {
            let step = points.last().map_or(0, |point| point.step);
            let key = move |line: Line| {
                let value = match newest(line, points.iter().copied()) {
                    Some((at, nats)) if at == step => loss(nats),
                    Some((at, nats)) => format!("{} (step {})", loss(nats), count(at)),
                    None => "not measured yet".to_owned(),
                };
                view! {
                    <span class="key key-line" data-line=line.key()>{line.name()} " " <b>{value}</b></span>
                }
            };
            view! {
                <span class="key">"Local step " <b>{count(step)}</b></span>
                {shown.into_iter().map(key).collect_view()}
            }
        })
    };
    let toggle = move |line: Line| {
        let on = move || lines.with(|lines| lines.contains(&line));
        let change = move |event| {
            let checked = event_target_checked(&event);
            // In the order of the list, however they were chosen.
            lines.update(|lines| {
                *lines = Line::ALL
                    .into_iter()
                    .filter(|other| if *other == line { checked } else { lines.contains(other) })
                    .collect();
            });
        };
        view! {
            <label class="toggle" data-line=line.key()>
                <input type="checkbox" data-testid=format!("line-{}", line.key()) prop:checked=on on:change=change/>
                <span>{line.name()}</span>
            </label>
        }
    };
    view! {
        <figure class="chart">
            <p class="chart-read" aria-hidden="true">{read}</p>
            <div class="chart-box">
                <div
                    class="chart-host"
                    node_ref=chart.host
                    role="img"
                    aria-label=move || live.curve.with(|curve| summary(curve, &lines.get()))
                ></div>
                <p class="chart-empty" hidden=move || !is_empty()>"The curve starts with the first finished round."</p>
            </div>
            <fieldset class="toggles">
                <legend>"Lines in the chart"</legend>
                {Line::ALL.map(toggle).into_iter().collect_view()}
            </fieldset>
            <p class="quiet">
                "The first line is the headline and means little by itself: it counts what all blocks do in turn, so hold \
                 it against the best block alone. Leaky lines see the answer through the noise: they say little about how \
                 well the model guesses, however low they are."
            </p>
        </figure>
    }
}

#[component]
pub fn ParticipationCurve() -> impl IntoView {
    let live = expect_context::<Live>();
    let chart = Chart::new(Subject::Participation);
    let read = move || {
        chart.up_to_cursor(|points| {
            let point = points.last()?;
            let share = point.participation.map_or("–".to_owned(), percent);
            Some(view! {
                <span class="key">"Local step " <b>{count(point.step)}</b></span>
                <span class="key key-line" data-line="participation">"Participation " <b>{share}</b></span>
            })
        })
    };
    let words = move || {
        live.curve.with(|curve| match curve.last().and_then(|point| point.participation) {
            Some(share) => format!("Participation per round; in the last one {}", percent(share)),
            None => "Participation per round, none so far".to_owned(),
        })
    };
    view! {
        <figure class="chart">
            <p class="chart-read" aria-hidden="true">{read}</p>
            <div class="chart-box low">
                <div class="chart-host" node_ref=chart.host role="img" aria-label=words></div>
            </div>
        </figure>
    }
}

fn summary(curve: &[CurvePoint], lines: &[Line]) -> String {
    let words = |line: &Line| {
        let (step, nats) = newest(*line, curve.iter())?;
        Some(format!("{} {} at local step {}", line.name(), loss(nats), count(step)))
    };
    let words: Vec<String> = lines.iter().filter_map(words).collect();
    if words.is_empty() {
        "Curve of cross-entropies, nothing measured so far".to_owned()
    } else {
        format!("Curve of cross-entropies: {}", words.join("; "))
    }
}
