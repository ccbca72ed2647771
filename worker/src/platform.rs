//! What a worker needs of the place it runs in: a network, a clock, the coordinator's store, and somebody to report to.
//!
//! The native worker gives tokio and tungstenite, a tab gives `WebSocket`, timers and `fetch`, the simulator gives all of
//! it under a virtual clock. The futures are not `Send`: a session lives on one thread, in a browser because there is no
//! other. Any of them may be dropped half-way: a deadline has passed, or the person leaves.
#![allow(async_fn_in_trait)]

use std::ops::Range;

use futures::{
    future::{Either, select},
    pin_mut,
};
use protocol::{blob::BlobHash, message::DeviceStatus, spec::Part, tab::SessionEvent};

/// Why the platform could not do something: one sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlatformError(pub String);

/// Everything a session needs.
pub struct Platform<N, C, B, R> {
    /// Connects to the coordinator.
    pub network: N,
    /// Time.
    pub clock: C,
    /// The coordinator's store.
    pub blobs: B,
    /// Hears what happens.
    pub reporter: R,
}

/// Connects to the coordinator.
pub trait Network {
    /// What a connection is.
    type Transport: Transport;

    /// Opens a connection. The session gives up waiting after a while.
    ///
    /// # Errors
    /// When the coordinator cannot be reached.
    async fn connect(&self) -> Result<Self::Transport, PlatformError>;
}

/// One connection to the coordinator. Closed when dropped.
pub trait Transport {
    /// Hands a frame to the connection; waits while too much is still unsent.
    ///
    /// # Errors
    /// When the connection is closed.
    async fn send(&self, frame: Vec<u8>) -> Result<(), PlatformError>;

    /// The next frame. No frame is lost when the future is dropped half-way.
    ///
    /// # Errors
    /// When the connection is closed and every frame that came before has been given.
    async fn receive(&self) -> Result<Vec<u8>, PlatformError>;

    /// Waits until everything sent has left, then closes.
    async fn finish(&self);
}

/// Time, and the way to other work of the same thread.
pub trait Clock {
    /// Seconds since some fixed moment.
    fn now(&self) -> f64;

    /// Waits for so many seconds.
    async fn sleep(&self, seconds: f64);

    /// Yields to the event loop. It must be pending once: a session that computes without pause hears nothing otherwise.
    async fn yield_now(&self);

    /// Awaited after each unit of computing, within the time that is measured for it. A virtual clock lets the time pass
    /// that the work takes; a real one has nothing to add.
    async fn computed(&self, _work: Compute<'_>) {}
}

/// A unit of computing: one micro-batch or one local step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute<'a> {
    /// Pipeline mode: forward through a part of the model.
    Forward(&'a Part),
    /// Pipeline mode: back through a part of the model.
    Backward(&'a Part),
    /// Pipeline mode: forward through the part with the head, the loss, and back.
    Loss(&'a Part),
    /// Pipeline mode: the AdamW update of all parts held.
    Update,
    /// Block mode: one local step.
    LocalStep,
    /// Block mode: one of the passes over the whole model that an evaluation is made of.
    EvaluationPass,
}

/// What the coordinator's store says to a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The blob is whole.
    Whole,
    /// The next piece, please.
    More,
    /// The next piece must begin at this byte.
    GoOnAt(u64),
    /// The store, or a proxy before it, takes only smaller pieces (HTTP 413).
    TooLarge,
    /// The same piece again after a while: see [`Later`].
    Later(Later),
}

/// What the coordinator's store says to a request for a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Got {
    /// The bytes.
    Bytes(Vec<u8>),
    /// Ask again after a while.
    Later(Later),
}

/// The store has no room or no time for a request (HTTP 429, 503), or its disk takes no writes (507): the same request
/// again after so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Later {
    /// As the store says; a guess where it does not.
    pub seconds: u32,
}

impl Later {
    /// Seconds to wait where the answer does not say.
    const UNSAID: u32 = 5;
    /// A store that asks for more is asked again before.
    const LONGEST: u32 = 120;

    /// Of an answer with this status and this `Retry-After`; None for an answer that says something else.
    pub fn of(status: u16, retry_after: Option<&str>) -> Option<Self> {
        // Dates are allowed too; this store gives seconds, and of a proxy's date it is enough that it is not now.
        let seconds = retry_after.and_then(|text| text.trim().parse().ok()).unwrap_or(Self::UNSAID);
        matches!(status, 429 | 503 | 507).then_some(Self { seconds: seconds.clamp(1, Self::LONGEST) })
    }
}

/// Single requests to the coordinator's content-addressed store; `token` is the session's.
pub trait Blobs {
    /// Bytes `range` of a blob.
    ///
    /// # Errors
    /// When the store cannot be reached, or does not have them.
    async fn get(&self, token: &str, hash: BlobHash, range: Range<u64>) -> Result<Got, PlatformError>;

    /// Stores the piece that begins at byte `first` of `total`.
    ///
    /// # Errors
    /// When the store cannot be reached, or does not take it.
    async fn put(
        &self,
        token: &str,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, PlatformError>;
}

/// Hears what happens in a session, and knows how the device is.
pub trait Reporter {
    /// Something happened.
    fn tell(&self, event: SessionEvent);

    /// How the device is; asked once a step or round.
    fn status(&self) -> DeviceStatus;
}

/// The outcome of `future`, or None when it takes longer than `seconds`.
pub(crate) async fn within<T>(
    clock: &impl Clock,
    seconds: f64,
    future: impl Future<Output = T>,
) -> Option<T> {
    let late = clock.sleep(seconds);
    pin_mut!(future, late);
    match select(future, late).await {
        Either::Left((outcome, _)) => Some(outcome),
        Either::Right(_) => None,
    }
}

/// Seconds since `began`. A clock that was set back has seen no time pass.
pub(crate) fn seconds_since(clock: &impl Clock, began: f64) -> f64 {
    (clock.now() - began).max(0.0)
}
