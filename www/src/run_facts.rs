//! Numbers of the run, as the pages show them.

use leptos::prelude::*;
use protocol::view::{Phase, RoundsView, RunView};

use crate::{
    block_words,
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

/// Whether the run is in block mode; None while the run is unknown.
pub fn block_mode(live: Live) -> Memo<Option<bool>> {
    Memo::new(move |_| live.run.with(|run| run.as_ref().map(block_words::is_block_mode)))
}

/// Reads the rounds of a run in block mode, "–" while there are none.
pub fn of_rounds(live: Live, read: impl Fn(&RoundsView) -> String + Send + Sync + 'static) -> Signal<String> {
    Signal::derive(move || {
        live.run.with(|run| run.as_ref().and_then(|run| run.rounds.as_ref()).map_or(NONE.to_owned(), &read))
    })
}

/// "of 400, about 3 min left".
pub fn rounds(run: &RunView) -> String {
    let all = run.rounds.as_ref().map_or(0, |rounds| rounds.rounds);
    let left = words::seconds_left(run).map(|s| format!(", about {} left", about(s)));
    format!("of {}{}", count(all), left.unwrap_or_default())
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
