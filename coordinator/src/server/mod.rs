//! What answers on the network: sessions of workers, blobs, the API of the pages, and the pages themselves.
//!
//! ```text
//! listener.rs   connections: accepted, bounded, closed when they stand still
//! guard.rs      Host and Origin of every request          upgrade.rs  HTTP to WebSocket, small until Hello
//! session.rs    one worker's session, whole                hub.rs      who is connected, and what may pass
//! relay_queue.rs relayed frames that wait for a worker     blobs.rs    blobs over HTTP
//! api.rs        JSON for the pages                         events.rs   server-sent events
//! answers.rs    answers in words, and bearer tokens of requests   ranges.rs  ranges of bytes in headers
//! metrics.rs    /metrics                                   token.rs    bearer tokens
//! ```

mod answers;
mod api;
mod blobs;
mod events;
mod guard;
mod hub;
mod listener;
mod metrics;
pub mod ranges;
mod relay_queue;
mod session;
pub(crate) mod token;
mod upgrade;

use std::sync::{Arc, atomic::AtomicU64};

use axum::Router;
use control::Event;
use tokio::sync::{broadcast, mpsc, watch};

pub(crate) use hub::Hub;
pub(crate) use listener::serve;

use crate::storage::{blob_store::BlobStore, watch::StorageWatch};

/// What every request handler may reach.
pub(crate) struct Shared {
    pub(crate) hub: Hub,
    /// To the run. Bounded: a flood of messages stops the readers, not the coordinator.
    pub(crate) events: mpsc::Sender<Event>,
    /// The newest `RunView`, as JSON.
    pub(crate) view: watch::Receiver<String>,
    /// The learning curve so far.
    pub(crate) curve: watch::Receiver<Arc<Vec<protocol::view::CurvePoint>>>,
    /// New points of the curve, as JSON arrays.
    pub(crate) points: broadcast::Sender<String>,
    pub(crate) blobs: BlobStore,
    /// Notes when the disk refuses, and when it takes writes again.
    pub(crate) storage: StorageWatch,
    /// Bearer token of the organizer.
    pub(crate) organizer: String,
    /// Number of the next worker; unique over restarts.
    pub(crate) next_worker: AtomicU64,
    /// Largest frame of a session after its Hello, in bytes.
    pub(crate) largest_frame: usize,
    /// Hosts, without ports, by which requests may name this coordinator; None: any.
    pub(crate) hosts: Option<Vec<String>>,
}

/// Everything the coordinator answers to: the API, the sessions, the pages.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(blobs::routes())
        .route("/v1/session", axum::routing::any(session::upgrade))
        .with_state(shared.clone())
        .merge(crate::pages::router())
        .layer(axum::middleware::from_fn_with_state(shared, guard::same_host))
}
