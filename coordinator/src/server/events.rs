//! Server-sent events: the run's state and the learning curve, as they change.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, stream};
use tokio_stream::wrappers::{BroadcastStream, IntervalStream, WatchStream};

use super::{Shared, guard::asker, limits::Held};

/// How often a stream says that it is there. What is between two newlines and begins with a colon is no event.
const ALIVE: Duration = Duration::from_secs(15);

/// `GET /v1/run/events`: events `run` (a RunView) and `points` (an array of CurvePoint).
pub(super) async fn stream_events(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let permit = match shared.limits.take(asker(&request), Held::Stream) {
        Ok(permit) => permit,
        Err(refused) => return refused.answer(),
    };
    let views = WatchStream::new(shared.view.clone()).map(|view| event("run", view));
    // A reader too slow for the points misses some; the page fetches the curve when it sees a gap.
    let points = BroadcastStream::new(shared.points.subscribe())
        .filter_map(|points| async move { points.ok() })
        .map(|points| event("points", points.into()));
    let mut pulse = tokio::time::interval_at(tokio::time::Instant::now() + ALIVE, ALIVE);
    pulse.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let alive = IntervalStream::new(pulse).map(|_| [Bytes::new(), Bytes::from_static(b":"), END]);
    let events = stream::select(stream::select(views, points), alive);
    let mut response = Body::from_stream(pieces(events, permit)).into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

const END: Bytes = Bytes::from_static(b"\n\n");

/// One event, whose data all streams share: many open pages take no more memory than one. JSON has no line breaks.
fn event(name: &'static str, data: Bytes) -> [Bytes; 3] {
    let start = match name {
        "run" => Bytes::from_static(b"event: run\ndata: "),
        _ => Bytes::from_static(b"event: points\ndata: "),
    };
    [start, data, END]
}

/// The events' pieces one after the other; holds `permit` as long as somebody reads them.
fn pieces<P>(
    events: impl Stream<Item = [Bytes; 3]>,
    permit: P,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    events.flat_map(stream::iter).filter(|piece| std::future::ready(!piece.is_empty())).map(move |piece| {
        let _ = &permit;
        Ok(piece)
    })
}
