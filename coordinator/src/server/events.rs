//! Server-sent events: the run's state and the learning curve, as they change.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, StreamExt, stream};
use tokio_stream::wrappers::{BroadcastStream, WatchStream};

use super::Shared;

/// `GET /v1/run/events`: events `run` (a RunView) and `points` (an array of CurvePoint).
pub(super) async fn stream_events(
    State(shared): State<Arc<Shared>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let views = WatchStream::new(shared.view.clone()).map(|view| Event::default().event("run").data(view));
    // A reader too slow for the points misses some; the page fetches the curve when it sees a gap.
    let points = BroadcastStream::new(shared.points.subscribe())
        .filter_map(|points| async move { points.ok() })
        .map(|points| Event::default().event("points").data(points));
    let events = stream::select(views, points).map(Ok);
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}
