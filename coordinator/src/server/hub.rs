//! The connections: who is there, how to reach them, and what may pass between them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::body::Bytes;
use control::{
    pipeline::{Relay, Verdict},
    record::Traffic,
};
use protocol::{
    message::{Header, Relayed},
    refusal::Refusal,
    tensor::{decode_floats, verify},
    worker_id::WorkerId,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    places::{Place, Places},
    relay_queue::RelayQueue,
};
use crate::address::Address;

/// Bytes of the coordinator's own messages that may wait for one worker: several steps' tokens. Who reads less than it
/// is sent is not there.
const MOST_QUEUED: u64 = 128 << 20;
/// What a message that waits takes beside its bytes.
const OVERHEAD: u64 = 256;
/// Connections that may be without a Hello at a time, of one address and of all; the oldest gives way.
const MOST_WITHOUT_HELLO: [usize; 2] = [64, 256];
/// Pieces of blobs that one worker may be sending at a time: one of each transfer that it can have under way.
const PIECES: usize = 3;
/// Of every so many relayed frames one has its checksum verified, where not all have.
const VERIFY_EVERY: u64 = 64;

/// A message of the coordinator's own that waits, with its share of what may wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: Bytes,
    queued: Arc<AtomicU64>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.queued.fetch_sub(self.bytes.len() as u64 + OVERHEAD, Ordering::Relaxed);
    }
}

/// What a connection's writer is told.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Frame(Waiting),
    /// Say why, then close.
    Close(Refusal),
}

/// The coordinator's own messages for one worker.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    sender: mpsc::UnboundedSender<Outgoing>,
    queued: Arc<AtomicU64>,
}

impl Queue {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Outgoing>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender, queued: Arc::default() }, receiver)
    }

    /// Queues; nobody is there to take it when the writer has ended.
    pub(crate) fn send(&self, outgoing: Outgoing) {
        let _ = self.sender.send(outgoing);
    }

    /// Queues a frame; false when too much waits already.
    fn frame(&self, bytes: Bytes) -> bool {
        let length = bytes.len() as u64 + OVERHEAD;
        let before = self.queued.fetch_add(length, Ordering::Relaxed);
        let fits = before + length <= MOST_QUEUED;
        // What does not fit gives its share back when it is dropped.
        let waiting = Waiting { bytes, queued: self.queued.clone() };
        if fits {
            self.send(Outgoing::Frame(waiting));
        }
        fits
    }
}

/// Bytes that have gone to and from one worker, over its session and the store.
#[derive(Debug, Default)]
struct Counter {
    down: AtomicU64,
    up: AtomicU64,
}

/// The way to one worker.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    /// The coordinator's own messages.
    pub(crate) control: Queue,
    /// Frames of other workers.
    pub(crate) relay: RelayQueue,
}

#[derive(Debug)]
pub(crate) struct Hub {
    outboxes: Mutex<HashMap<WorkerId, Connected>>,
    tokens: Mutex<HashMap<String, WorkerId>>,
    relay: Mutex<Relay>,
    connected: watch::Sender<usize>,
    relayed: Count,
    without_hello: Arc<Places>,
}

#[derive(Debug)]
struct Connected {
    outbox: Outbox,
    /// The worker's bearer token.
    token: String,
    counter: Counter,
    /// Ends its session.
    ended: CancellationToken,
    /// Bytes of results that it may still upload of the work it has been given.
    expected: AtomicU64,
    /// Pieces that it may begin to send.
    pieces: Arc<Semaphore>,
}

/// What has been passed on since the start.
#[derive(Debug, Default)]
struct Count {
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
            relayed: Count::default(),
            without_hello: Places::new(MOST_WITHOUT_HELLO[0], MOST_WITHOUT_HELLO[1]),
        }
    }
}

/// A panic elsewhere must not take the hub with it: its maps are whole between any two calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// A connection waits for its Hello. Holds its place until the first value is dropped; the second is cancelled when
    /// it has to give way.
    pub(super) fn wait_for_hello(&self, address: Address) -> (Place, CancellationToken) {
        let token = CancellationToken::new();
        (self.without_hello.take(address, token.clone()), token)
    }

    /// A worker is connected.
    pub(crate) fn connect(&self, worker: WorkerId, token: String, outbox: Outbox, ended: CancellationToken) {
        let mut outboxes = lock(&self.outboxes);
        let counter = Counter::default();
        let pieces = Arc::new(Semaphore::new(PIECES));
        let connected =
            Connected { outbox, token: token.clone(), counter, ended, expected: AtomicU64::new(0), pieces };
        outboxes.insert(worker, connected);
        self.connected.send_replace(outboxes.len());
        lock(&self.tokens).insert(token, worker);
    }

    pub(crate) fn disconnect(&self, worker: WorkerId) {
        let mut outboxes = lock(&self.outboxes);
        let gone = outboxes.remove(&worker);
        self.connected.send_replace(outboxes.len());
        if let Some(gone) = gone {
            lock(&self.tokens).remove(&gone.token);
        }
    }

    /// Wait until nobody is connected any more.
    pub(crate) async fn empty(&self) {
        let _ = self.connected.subscribe().wait_for(|n| *n == 0).await;
    }

    /// The worker a bearer token belongs to.
    pub(crate) fn bearer(&self, token: &str) -> Option<WorkerId> {
        lock(&self.tokens).get(token).copied()
    }

    /// Queues a message of the coordinator's own. A worker that is gone gets nothing; the session of one that does not
    /// read ends.
    pub(crate) fn send(&self, worker: WorkerId, bytes: Bytes) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            connected.counter.down.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if !connected.outbox.control.frame(bytes) {
                tracing::warn!(%worker, "reads nothing: {MOST_QUEUED} bytes wait for it");
                connected.ended.cancel();
            }
        }
    }

    /// Says why and ends the session. Its token is good for nothing from now on.
    pub(crate) fn close(&self, worker: WorkerId, refusal: Refusal) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            lock(&self.tokens).remove(&connected.token);
            connected.outbox.control.send(Outgoing::Close(refusal));
        }
    }

    /// The worker has been given work: it may upload so many bytes of what comes of it. What it was granted before and
    /// has not used ends with that.
    pub(crate) fn grant_upload(&self, worker: WorkerId, bytes: u64) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            connected.expected.store(bytes, Ordering::Relaxed);
        }
    }

    /// Whether a worker may upload so many bytes.
    pub(super) fn may_upload(&self, worker: WorkerId, bytes: u64) -> bool {
        lock(&self.outboxes).get(&worker).is_some_and(|c| c.expected.load(Ordering::Relaxed) >= bytes)
    }

    /// The store has taken so many bytes of what a worker may upload.
    pub(super) fn uploaded(&self, worker: WorkerId, bytes: u64) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            let less = |expected: u64| Some(expected.saturating_sub(bytes));
            let _ = connected.expected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Lets a worker send a piece; None while it sends as many as it may.
    pub(super) fn piece(&self, worker: WorkerId) -> Option<OwnedSemaphorePermit> {
        lock(&self.outboxes).get(&worker)?.pieces.clone().try_acquire_owned().ok()
    }

    /// Note bytes that have come from a worker.
    pub(crate) fn count_up(&self, worker: WorkerId, bytes: u64) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            connected.counter.up.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Note bytes that the store has given to a worker.
    pub(crate) fn count_down(&self, worker: WorkerId, bytes: u64) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            connected.counter.down.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes to and from a worker since this was last asked.
    pub(crate) fn take_traffic(&self, worker: WorkerId) -> Traffic {
        let outboxes = lock(&self.outboxes);
        let Some(Connected { counter, .. }) = outboxes.get(&worker) else { return Traffic::default() };
        Traffic { down: counter.down.swap(0, Ordering::Relaxed), up: counter.up.swap(0, Ordering::Relaxed) }
    }

    pub(crate) fn route(&self, relay: Relay) {
        *lock(&self.relay) = relay;
    }

    pub(crate) fn open_step(&self, step: u64) {
        lock(&self.relay).open_step(step);
    }

    /// The worker that the open step waits for, as far as relayed frames tell.
    pub(crate) fn owing(&self) -> Option<WorkerId> {
        lock(&self.relay).owing()
    }

    /// Where a relayed frame goes; None for one of a plan or step that has ended.
    ///
    /// # Errors
    /// Why it is refused: by the plan, or because its payload does not match its own checksum.
    pub(crate) fn admit(
        &self,
        from: WorkerId,
        message: &Relayed,
        payload: &[u8],
        frame_bytes: u64,
    ) -> Result<Option<Outbox>, Refusal> {
        let (verdict, verify_all) = {
            let mut relay = lock(&self.relay);
            (relay.admit(from, message)?, relay.verify_all)
        };
        let Verdict::Forward(worker) = verdict else { return Ok(None) };
        let frames = self.relayed.frames.fetch_add(1, Ordering::Relaxed);
        self.relayed.bytes.fetch_add(frame_bytes, Ordering::Relaxed);
        let tensor = &message.frame().tensor;
        let verified = match verify_all {
            true => decode_floats(tensor, payload).map(|_| ()),
            false if frames.is_multiple_of(VERIFY_EVERY) => verify(tensor, payload),
            false => Ok(()),
        };
        verified.map_err(|error| Refusal::Malformed {
            detail: format!("the payload of {} is not what its header says: {error}", message.name()),
        })?;
        Ok(lock(&self.outboxes).get(&worker).map(|connected| connected.outbox.clone()))
    }

    /// Frames and bytes passed on since the start.
    pub(crate) fn relayed(&self) -> (u64, u64) {
        (self.relayed.frames.load(Ordering::Relaxed), self.relayed.bytes.load(Ordering::Relaxed))
    }
}
