//! A progress bar on stderr, where that is a terminal.

use std::{
    io::{IsTerminal, Write},
    sync::atomic::{AtomicU64, Ordering},
};

/// Of so many pieces; may be told from several threads.
pub(super) struct Progress {
    what: String,
    total: u64,
    done: AtomicU64,
    shown: bool,
}

const WIDTH: u64 = 40;

impl Progress {
    pub(super) fn new(what: &str, total: u64) -> Progress {
        let shown = std::io::stderr().is_terminal();
        Progress { what: what.into(), total: total.max(1), done: AtomicU64::new(0), shown }
    }

    /// One piece more is done.
    pub(super) fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.shown {
            let filled = (WIDTH * done / self.total).min(WIDTH) as usize;
            let bar = "#".repeat(filled) + &".".repeat(WIDTH as usize - filled);
            // Who cannot see the bar loses nothing.
            let _ = write!(std::io::stderr(), "\r{} [{bar}] {done}/{}", self.what, self.total);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = writeln!(std::io::stderr());
        }
    }
}
