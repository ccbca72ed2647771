//! What a session needs of the place it runs in: a connection, a clock, blobs, and somebody to tell.
//!
//! The native worker gives tokio and tungstenite, a tab gives `WebSocket`, timers and `fetch`. The futures
//! are not `Send`: a session lives on one thread, in a browser because there is no other.
#![allow(async_fn_in_trait)]

use std::ops::Range;

use protocol::{blob::BlobHash, message::Vitals, tab::SessionEvent};

/// Why the host could not do something: one sentence for a person. The session tries again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// One connection to the coordinator. Closed when dropped.
pub trait Transport {
    /// Hand a frame to the connection; waits while too much is still unsent.
    async fn send(&self, frame: Vec<u8>) -> Result<(), HostError>;
    /// The next frame; an error when the connection is closed. Safe to drop half-way.
    async fn receive(&self) -> Result<Vec<u8>, HostError>;
    /// A frame that has already arrived.
    fn try_receive(&self) -> Result<Option<Vec<u8>>, HostError>;
    /// Wait until everything sent has left, then close.
    async fn finish(&self);
}

pub trait Network {
    type Transport: Transport;
    async fn connect(&self) -> Result<Self::Transport, HostError>;
}

pub trait Clock {
    /// Seconds since some fixed moment.
    fn now(&self) -> f64;
    async fn sleep(&self, seconds: f64);
    /// Let the host's own events in: without it a tab that computes without pause hears nothing.
    async fn breathe(&self);
}

/// What the coordinator's store says to a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The blob is whole.
    Whole,
    /// The next piece, please.
    More,
    /// The next piece must begin here.
    GoOnAt(u64),
}

/// Single requests to the coordinator's content-addressed store; `token` is the session's.
pub trait Blobs {
    /// Bytes `range` of a blob.
    async fn get(&self, token: &str, hash: BlobHash, range: Range<u64>) -> Result<Vec<u8>, HostError>;
    /// The piece that begins at byte `first` of `total`.
    async fn put(
        &self,
        token: &str,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, HostError>;
}

/// Everything a session needs.
pub struct Host<N, C, B> {
    pub network: N,
    pub clock: C,
    pub blobs: B,
    /// How the program is, asked once a step.
    pub vitals: Box<dyn Fn() -> Vitals>,
    /// Hears what happens.
    pub tell: Box<dyn Fn(SessionEvent)>,
}
