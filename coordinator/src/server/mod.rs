//! What answers on the network: sessions of workers, blobs, the API of the pages, and the pages themselves.
//!
//! ```text
//! listener.rs   connections: accepted, bounded, closed when they stand still
//! limits.rs     how much each address may have, and all
//! permits.rs    the limits of a coordinator that runs      places.rs   who gives way when there are too many
//! watched.rs    whether a peer reads                       receive.rs  bodies of requests, within their time
//! guard.rs      Host and Origin of every request           upgrade.rs  HTTP to WebSocket, small until Hello
//! secured.rs    with TLS or without, at the same port      trust/       the way to TLS, for who comes without
//! session.rs    one worker's session, whole                hub.rs      who is connected, and what may pass
//! relay_queue.rs relayed frames that wait for a worker     blobs.rs    blobs over HTTP
//! api.rs        JSON for the pages                         events.rs   server-sent events
//! answers.rs    answers in words, and bearer tokens of requests   ranges.rs  ranges of bytes in headers
//! metrics.rs    /metrics                                   token.rs    bearer tokens
//! completions.rs   texts that the model writes, in OpenAI's shape
//! ```

mod answers;
mod api;
mod blobs;
mod completions;
mod events;
mod guard;
mod hub;
mod limits;
mod listener;
mod metrics;
mod permits;
mod places;
pub mod ranges;
mod receive;
mod relay_queue;
mod secured;
mod session;
pub(crate) mod token;
pub(crate) mod trust;
mod upgrade;
mod watched;

use std::sync::{Arc, atomic::AtomicU64};

use axum::{Router, body::Bytes};
use control::Event;
use protocol::worker_id::WorkerId;
use tokio::sync::{Semaphore, broadcast, mpsc, watch};

pub(crate) use hub::Hub;
pub(crate) use listener::serve;
pub(crate) use permits::Limits;
pub(crate) use secured::Security;

use crate::{
    serving::Serving,
    storage::{blob_store::BlobStore, watch::StorageWatch},
};

/// What every request handler may reach.
pub(crate) struct Shared {
    pub(crate) hub: Hub,
    /// How much each address may have, and all together.
    pub(crate) limits: Limits,
    /// To the run. Bounded: a flood of messages stops the readers, not the coordinator.
    pub(crate) events: mpsc::Sender<Event>,
    /// The newest `RunView`, as JSON.
    pub(crate) view: watch::Receiver<Bytes>,
    /// The learning curve so far.
    pub(crate) curve: watch::Receiver<Arc<Vec<protocol::view::CurvePoint>>>,
    /// New points of the curve, as JSON arrays.
    pub(crate) points: broadcast::Sender<String>,
    pub(crate) blobs: BlobStore,
    /// Kibibytes of uploads that may be in memory while they arrive.
    pub(crate) uploads: Arc<Semaphore>,
    /// Notes when the disk refuses, and when it takes writes again.
    pub(crate) storage: StorageWatch,
    /// Bearer token of the organizer.
    pub(crate) organizer: String,
    /// Number of the next worker; unique over restarts.
    pub(crate) next_worker: AtomicU64,
    /// Largest frame of a session after its Hello, in bytes.
    pub(crate) largest_frame: usize,
    /// Texts that the model writes.
    pub(crate) serving: Serving,
    /// Hosts, without ports, by which requests may name this coordinator; None: any.
    pub(crate) hosts: Option<Vec<String>>,
}

/// How many of the largest results a worker may upload for one step or round: it may have to begin again, and may still
/// be sending that of the step before.
const RESULTS: u64 = 4;

impl Shared {
    /// The worker has been given work: it may upload what comes of it.
    pub(crate) fn grant_upload(&self, worker: WorkerId) {
        self.hub.grant_upload(worker, RESULTS * self.blobs.largest());
    }
}

/// Everything the coordinator answers to: the API, the sessions, the pages.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(blobs::routes())
        .merge(completions::routes())
        .route("/v1/session", axum::routing::any(session::upgrade))
        .with_state(shared.clone())
        .merge(crate::pages::router())
        .layer(axum::middleware::from_fn_with_state(shared, guard::same_host))
}
