//! The limits of a coordinator that runs: its clock, its lock, and permits that give themselves back.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use axum::{http::StatusCode, response::Response};

use super::{
    answers::later,
    limits::{Book, Held, Most, Rate, Refused, Used},
};
use crate::address::Address;
use crate::config::SessionConfig;

/// WebSockets of one address whose Hello has not come, and of all.
const HANDSHAKES: [usize; 2] = [64, 1024];
/// Blobs, or pieces of them, on their way to or from one address, and all. Each takes up to a few pieces' memory.
const TRANSFERS: [usize; 2] = [128, 512];
/// Streams of events of all.
const STREAMS: usize = 2048;
/// How many seconds' worth of requests an address may save up: a class that opens the page at once.
const REQUEST_BURST: f64 = 60.0;
/// Bytes with which the probes of one address are answered each second, and saved up. A worker's measurement takes a few
/// megabytes; a spare measures every half minute.
const PROBES: Rate = Rate { per_second: 4e6, burst: 1e9 };
/// All together may use this much more than one address.
const ADDRESSES: f64 = 20.0;
/// HTTP connections of all, where the system lets so many files be open.
const CONNECTIONS: usize = 8192;
/// Files that are kept for the coordinator itself.
const OWN_FILES: u64 = 128;

/// Who may have how much, shared by all that answers.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    book: Arc<Mutex<Book>>,
    started: Instant,
    /// Whether a proxy says for whom it asks.
    pub(super) behind_proxy: bool,
}

impl Limits {
    /// As a run's file says, with so many texts that an address may ask for and files that may be open.
    pub(crate) fn new(session: &SessionConfig, texts_per_minute: u32, files: u64) -> Self {
        let workers = session.max_workers as usize;
        // Each worker takes a file; so does each connection.
        let connections = files.saturating_sub(OWN_FILES + u64::from(session.max_workers)) as usize;
        let requests = f64::from(session.requests_per_second);
        let requests = Rate { per_second: requests, burst: requests * REQUEST_BURST };
        let texts = f64::from(texts_per_minute);
        let texts = Rate { per_second: texts / 60.0, burst: texts };
        let times =
            |rate: Rate| Rate { per_second: ADDRESSES * rate.per_second, burst: ADDRESSES * rate.burst };
        let each = Most {
            held: [
                session.connections_per_address as usize,
                HANDSHAKES[0],
                session.workers_per_address as usize,
                session.streams_per_address as usize,
                TRANSFERS[0],
            ],
            used: [requests, PROBES, texts],
        };
        let all = Most {
            // Whether the run is full, its decisions say, in words of their own.
            held: [
                connections.clamp(64, CONNECTIONS),
                HANDSHAKES[1],
                workers + HANDSHAKES[1],
                STREAMS,
                TRANSFERS[1],
            ],
            used: [times(requests), times(PROBES), times(texts)],
        };
        Self {
            book: Arc::new(Mutex::new(Book::new(each, all))),
            started: Instant::now(),
            behind_proxy: session.behind_proxy,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more of something, until the permit is dropped.
    ///
    /// # Errors
    /// When there is no more to have.
    pub(super) fn take(&self, address: Address, what: Held) -> Result<Permit, Refused> {
        self.book().take(self.started.elapsed(), address, what)?;
        Ok(Permit { limits: self.clone(), address, what })
    }

    /// Uses something up.
    ///
    /// # Errors
    /// When too much of it has been used.
    pub(super) fn try_use(&self, address: Address, what: Used, amount: f64) -> Result<(), Refused> {
        self.book().try_use(self.started.elapsed(), address, what, amount)
    }
}

/// A share of what there is; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    limits: Limits,
    address: Address,
    what: Held,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.limits.started.elapsed();
        self.limits.book().give_back(now, self.address, self.what);
    }
}

impl Refused {
    /// As the answer to a request: 429 when its address has too much, 503 when all together have.
    pub(super) fn answer(&self) -> Response {
        let status =
            if self.of_address { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
        later(status, &self.words, self.after)
    }
}
