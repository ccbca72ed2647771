//! The curves of block mode: cross-entropies that can be switched on and off, and participation.

use leptos::prelude::*;

use super::{Chart, figure::Subject};
use crate::{
    browser::live::Live,
    state::scores::{Line, newest},
    text::{
        chart::{self as text, value_at},
        numbers::count,
        scores,
    },
};

/// The cross-entropies of block mode, those that are chosen.
#[component]
pub(crate) fn ScoreCurve() -> impl IntoView {
    let live = expect_context::<Live>();
    let lines = RwSignal::new(Line::FIRST.to_vec());
    let chart = Chart::new(Subject::Scores(lines));
    let is_empty = move || live.curve.with(Vec::is_empty);
    let read = move || {
        let shown = lines.get();
        chart.up_to_cursor(|points| {
            let step = points.last().map_or(0, |point| point.step);
            let key = move |line: Line| {
                let value = value_at(step, newest(line, points.iter().copied()));
                view! {
                    <span class="key key-line" data-line=line.key()>{scores::line(line)} " " <b>{value}</b></span>
                }
            };
            view! {
                <span class="key">{text::LOCAL_STEP} <b>{count(step)}</b></span>
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
                <span>{scores::line(line)}</span>
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
                    aria-label=move || live.curve.with(|curve| text::cross_entropies(curve, &lines.get()))
                ></div>
                <p class="chart-empty" hidden=move || !is_empty()>{text::EMPTY_ROUNDS}</p>
            </div>
            <fieldset class="toggles">
                <legend>{text::LINES}</legend>
                {Line::ALL.map(toggle).into_iter().collect_view()}
            </fieldset>
            <p class="quiet">{text::HOW_TO_READ}</p>
        </figure>
    }
}

/// Participation in each round.
#[component]
pub(crate) fn ParticipationCurve() -> impl IntoView {
    let live = expect_context::<Live>();
    let chart = Chart::new(Subject::Participation);
    let read = move || {
        chart.up_to_cursor(|points| {
            let point = points.last()?;
            let share = text::participation_at(point);
            Some(view! {
                <span class="key">{text::LOCAL_STEP} <b>{count(point.step)}</b></span>
                <span class="key key-line" data-line="participation">{text::PARTICIPATION} <b>{share}</b></span>
            })
        })
    };
    let words = move || live.curve.with(|curve| text::participation(curve));
    view! {
        <figure class="chart">
            <p class="chart-read" aria-hidden="true">{read}</p>
            <div class="chart-box low">
                <div class="chart-host" node_ref=chart.host role="img" aria-label=words></div>
            </div>
        </figure>
    }
}
