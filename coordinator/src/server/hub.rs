//! The connections: who is there, how to reach them, and what may pass between them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::relay_queue::RelayQueue;

/// Bytes of the coordinator's own messages that may wait for one worker: several steps' tokens. Who reads less than it
/// is sent is not there.
const MOST_QUEUED: u64 = 128 << 20;
/// Connections that may be without a Hello at a time; the oldest gives way.
const MOST_WITHOUT_HELLO: usize = 256;
/// Of every so many relayed frames one has its checksum verified, where not all have.
const VERIFY_EVERY: u64 = 16;

/// A message of the coordinator's own that waits, with its share of what may wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) bytes: Bytes,
    queued: Arc<AtomicU64>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.queued.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
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
        let length = bytes.len() as u64;
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
    without_hello: Mutex<VecDeque<CancellationToken>>,
}

#[derive(Debug)]
struct Connected {
    outbox: Outbox,
    /// The worker's bearer token.
    token: String,
    counter: Counter,
    /// Ends its session.
    ended: CancellationToken,
    /// Whether it has been given work whose result it may upload.
    may_upload: AtomicBool,
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
            without_hello: Mutex::default(),
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
    pub(crate) fn wait_for_hello(&self) -> (HelloPlace<'_>, CancellationToken) {
        let token = CancellationToken::new();
        let mut waiting = lock(&self.without_hello);
        waiting.retain(|other| !other.is_cancelled());
        if waiting.len() >= MOST_WITHOUT_HELLO
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.cancel();
        }
        waiting.push_back(token.clone());
        (HelloPlace { hub: self, token: token.clone() }, token)
    }

    /// A worker is connected.
    pub(crate) fn connect(&self, worker: WorkerId, token: String, outbox: Outbox, ended: CancellationToken) {
        let mut outboxes = lock(&self.outboxes);
        let counter = Counter::default();
        let connected =
            Connected { outbox, token: token.clone(), counter, ended, may_upload: AtomicBool::new(false) };
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

    /// The worker has been given work: it may upload what comes of it.
    pub(crate) fn grant_upload(&self, worker: WorkerId) {
        if let Some(connected) = lock(&self.outboxes).get(&worker) {
            connected.may_upload.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a worker may upload.
    pub(crate) fn may_upload(&self, worker: WorkerId) -> bool {
        lock(&self.outboxes).get(&worker).is_some_and(|c| c.may_upload.load(Ordering::Relaxed))
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

/// A connection's place among those without a Hello.
pub(crate) struct HelloPlace<'a> {
    hub: &'a Hub,
    token: CancellationToken,
}

impl Drop for HelloPlace<'_> {
    fn drop(&mut self) {
        // The marker of a place that is free again; whoever looks next removes it.
        self.token.cancel();
        lock(&self.hub.without_hello).retain(|other| !other.is_cancelled());
    }
}
