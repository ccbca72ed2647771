//! The connections: who is there, how to reach them, and what may pass between them.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::body::Bytes;
use protocol::{message::Message, refusal::Refusal};
use tokio::sync::{mpsc, watch};

use super::relay_queue::RelayQueue;
use crate::run::{
    event::{Traffic, WorkerId},
    relay::{Relay, Verdict},
};

/// What a connection's writer is told.
#[derive(Debug)]
pub enum Outgoing {
    Frame(Bytes),
    /// Say why, then close.
    Close(Refusal),
}

/// Bytes that have gone to and from one worker, over its session and the store.
#[derive(Debug, Default)]
struct Counter {
    down: AtomicU64,
    up: AtomicU64,
}

/// The way to one worker.
#[derive(Debug, Clone)]
pub struct Outbox {
    /// The coordinator's own messages. Bounded by the run machine: it sends at most one step ahead.
    pub control: mpsc::UnboundedSender<Outgoing>,
    /// Frames of other workers.
    pub relay: RelayQueue,
}

#[derive(Debug)]
pub struct Hub {
    outboxes: Mutex<HashMap<WorkerId, Connected>>,
    tokens: Mutex<HashMap<String, WorkerId>>,
    relay: Mutex<Relay>,
    connected: watch::Sender<usize>,
    relayed: Relayed,
}

#[derive(Debug)]
struct Connected {
    outbox: Outbox,
    /// The worker's bearer token.
    token: String,
    counter: Counter,
}

/// What has been passed on since the start.
#[derive(Debug, Default)]
struct Relayed {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Hub {
    fn default() -> Self {
        Self {
            outboxes: Mutex::default(),
            tokens: Mutex::default(),
            relay: Mutex::new(Relay::closed(0)),
            connected: watch::Sender::new(0),
            relayed: Relayed::default(),
        }
    }
}

/// A panic elsewhere must not take the hub with it: its maps are whole between any two calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    pub fn connect(&self, worker: WorkerId, token: String, outbox: Outbox) {
        let mut outboxes = lock(&self.outboxes);
        outboxes.insert(worker, Connected { outbox, token: token.clone(), counter: Counter::default() });
        self.connected.send_replace(outboxes.len());
        lock(&self.tokens).insert(token, worker);
    }

    pub fn disconnect(&self, worker: WorkerId) {
        let mut outboxes = lock(&self.outboxes);
        let gone = outboxes.remove(&worker);
        self.connected.send_replace(outboxes.len());
        if let Some(gone) = gone {
            lock(&self.tokens).remove(&gone.token);
        }
    }

    /// Wait until nobody is connected any more.
    pub async fn empty(&self) {
        let _ = self.connected.subscribe().wait_for(|n| *n == 0).await;
    }

    /// The worker a bearer token belongs to.
    pub fn bearer(&self, token: &str) -> Option<WorkerId> {
        lock(&self.tokens).get(token).copied()
    }

    /// Queue a message of the coordinator's own. A worker that is gone gets nothing.
    pub fn send(&self, worker: WorkerId, outgoing: Outgoing) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            if let Outgoing::Frame(bytes) = &outgoing {
                connected.counter.down.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            let _ = connected.outbox.control.send(outgoing);
        }
    }

    /// Note bytes that have come from a worker.
    pub fn count_up(&self, worker: WorkerId, bytes: u64) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            connected.counter.up.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Note bytes that the store has given to a worker.
    pub fn count_down(&self, worker: WorkerId, bytes: u64) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            connected.counter.down.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes to and from a worker since this was last asked.
    pub fn take_traffic(&self, worker: WorkerId) -> Traffic {
        let outboxes = lock(&self.outboxes);
        let Some(Connected { counter, .. }) = outboxes.get(&worker) else { return Traffic::default() };
        Traffic { down: counter.down.swap(0, Ordering::Relaxed), up: counter.up.swap(0, Ordering::Relaxed) }
    }

    pub fn route(&self, relay: Relay) {
        *lock(&self.relay) = relay;
    }

    pub fn open_step(&self, step: u64) {
        lock(&self.relay).open_step(step);
    }

    /// Where a tensor frame goes; None for one whose time is past.
    pub fn admit(&self, from: WorkerId, message: &Message, bytes: usize) -> Result<Option<Outbox>, Refusal> {
        match lock(&self.relay).admit(from, message)? {
            Verdict::Stale => Ok(None),
            Verdict::Forward(worker) => {
                self.relayed.frames.fetch_add(1, Ordering::Relaxed);
                self.relayed.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                Ok(lock(&self.outboxes).get(&worker).map(|connected| connected.outbox.clone()))
            }
        }
    }

    /// Frames and bytes passed on since the start.
    pub fn relayed(&self) -> (u64, u64) {
        (self.relayed.frames.load(Ordering::Relaxed), self.relayed.bytes.load(Ordering::Relaxed))
    }
}
