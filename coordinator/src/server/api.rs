//! The JSON API of the pages.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use control::{Command, Event};
use protocol::worker_id::WorkerId;
use serde::Deserialize;

use super::{
    Shared,
    answers::{bearer, problem},
    events, metrics,
};

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/run", get(run))
        .route("/v1/run/curve", get(curve))
        .route("/v1/run/events", get(events::stream_events))
        .route("/v1/organizer", get(organizer))
        .route("/v1/run/start", post(|s, h| command(s, h, Command::Start)))
        .route("/v1/run/pause", post(|s, h| command(s, h, Command::Pause)))
        .route("/v1/run/stop", post(|s, h| command(s, h, Command::Stop)))
        .route(
            "/v1/workers/{id}/remove",
            post(|s, h, Path(id): Path<u64>| command(s, h, Command::Remove(WorkerId(id)))),
        )
}

async fn run(State(shared): State<Arc<Shared>>) -> Response {
    let view = shared.view.borrow().clone();
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], view).into_response()
}

#[derive(Deserialize)]
struct After {
    /// Points of later steps only.
    #[serde(default)]
    after: u64,
}

async fn curve(State(shared): State<Arc<Shared>>, Query(After { after }): Query<After>) -> Response {
    let curve = shared.curve.borrow().clone();
    let points: Vec<_> = curve.iter().filter(|p| p.step > after).collect();
    ([(header::CACHE_CONTROL, "no-store")], Json(points)).into_response()
}

/// `GET /v1/organizer`: 204 for the organizer's token, so that a page can tell at once whether its buttons will work.
async fn organizer(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if_organizer(&shared, &headers)
        .map_or_else(|refused| *refused, |()| StatusCode::NO_CONTENT.into_response())
}

/// # Errors
/// The answer to anybody else.
pub(super) fn if_organizer(shared: &Shared, headers: &HeaderMap) -> Result<(), Box<Response>> {
    if super::token::equal(bearer(headers).unwrap_or_default(), &shared.organizer) {
        return Ok(());
    }
    Err(Box::new(problem(
        StatusCode::UNAUTHORIZED,
        "only the organizer may do this: open the organizer link that the coordinator printed",
    )))
}

async fn command(State(shared): State<Arc<Shared>>, headers: HeaderMap, command: Command) -> Response {
    if let Err(refused) = if_organizer(&shared, &headers) {
        return *refused;
    }
    match shared.events.send(Event::Asked(command)).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(_) => problem(StatusCode::SERVICE_UNAVAILABLE, "the coordinator is going down"),
    }
}
