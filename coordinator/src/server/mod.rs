//! The IO around the run machine: sockets in, events to the machine, its actions out to sockets and disk.

mod actor;
mod api;
mod blobs;
mod events;
mod hub;
mod metrics;
mod relay_queue;
mod rounds;
mod session;

use std::sync::Arc;

use axum::Router;
use tokio::sync::{broadcast, mpsc, watch};

pub use actor::{Actor, Ending};
pub use blobs::BlobStore;
pub use hub::Hub;
pub use rounds::{Rounds, RoundsSetup, publish as publish_round, resume as resume_rounds};

use crate::run::event::Event;

/// What every request handler may reach.
pub struct Shared {
    pub hub: Hub,
    /// To the run machine. Bounded: a flood of messages stops the readers, not the coordinator.
    pub events: mpsc::Sender<Event>,
    /// The newest `RunView`, as JSON.
    pub view: watch::Receiver<String>,
    /// The learning curve so far.
    pub curve: watch::Receiver<Arc<Vec<protocol::view::CurvePoint>>>,
    /// New points of the curve, as JSON arrays.
    pub points: broadcast::Sender<String>,
    pub blobs: BlobStore,
    /// Bearer token of the organizer.
    pub organizer: String,
}

/// Everything the coordinator answers to: the API, the sessions, the pages.
pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(blobs::routes())
        .route("/v1/session", axum::routing::any(session::upgrade))
        .with_state(shared)
        .merge(crate::pages::router())
}
