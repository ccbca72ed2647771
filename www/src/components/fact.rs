//! Reading the run as a signal of words.

use leptos::prelude::*;
use protocol::view::{RoundsView, RunView};

use crate::{browser::live::Live, text::numbers::NONE};

/// Reads the run, "–" while it is unknown.
pub(crate) fn fact(live: Live, read: fn(&RunView) -> String) -> Signal<String> {
    Signal::derive(move || live.run.with(|run| run.as_ref().map_or(NONE.to_owned(), read)))
}

/// Reads a sentence about the run, nothing while it is unknown.
pub(crate) fn sentences(live: Live, read: fn(&RunView) -> String) -> Signal<String> {
    Signal::derive(move || live.run.with(|run| run.as_ref().map_or(String::new(), read)))
}

/// Reads the rounds of a run in block mode, "–" while there are none.
pub(crate) fn of_rounds(live: Live, read: fn(&RoundsView) -> String) -> Signal<String> {
    Signal::derive(move || {
        live.run.with(|run| run.as_ref().and_then(|run| run.rounds.as_ref()).map_or(NONE.to_owned(), read))
    })
}
