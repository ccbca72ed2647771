//! Numbers of the run, as the pages show them.

use leptos::prelude::*;
use protocol::view::{Phase, RunView};

use crate::{
    format::{about, count, loss},
    live::Live,
    words::{self, Tone},
};

const NONE: &str = "–";

/// Reads the run, "–" while it is unknown.
pub fn fact(live: Live, read: fn(&RunView) -> String) -> Signal<String> {
    Signal::derive(move || live.run.with(|run| run.as_ref().map_or(NONE.to_owned(), read)))
}

/// Reads a sentence about the run, nothing while it is unknown.
pub fn sentences(live: Live, read: fn(&RunView) -> String) -> Signal<String> {
    Signal::derive(move || live.run.with(|run| run.as_ref().map_or(String::new(), read)))
}

pub fn step(run: &RunView) -> String {
    count(run.step)
}

pub fn steps(run: &RunView) -> String {
    let left = words::seconds_left(run).map(|s| format!(", about {} left", about(s)));
    format!("of {}{}", count(run.steps), left.unwrap_or_default())
}

pub fn train_loss(run: &RunView) -> String {
    run.train_loss.map_or(NONE.to_owned(), loss)
}

pub fn validation_loss(run: &RunView) -> String {
    run.validation_loss.map_or(NONE.to_owned(), loss)
}

pub fn phase(live: Live) -> Memo<Option<Phase>> {
    Memo::new(move |_| live.run.with(|run| run.as_ref().map(|run| run.phase)))
}

pub fn phase_text(live: Live) -> Signal<String> {
    Signal::derive(move || {
        let text = live.run.with(|run| run.as_ref().map(|run| words::phase(run.phase).0));
        text.unwrap_or("Asking the coordinator").to_owned()
    })
}

pub fn phase_tone(live: Live) -> Signal<Tone> {
    Signal::derive(move || {
        live.run.with(|run| run.as_ref().map_or(Tone::Calm, |run| words::phase(run.phase).1))
    })
}

pub fn reason(live: Live) -> Signal<String> {
    sentences(live, |run| words::sentence(&run.reason))
}
