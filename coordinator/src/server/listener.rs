//! Connections: accepted, bounded in number, and closed when they stand still.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::Request,
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Time for the whole head of a request; a connection that is kept open without one ends after it too.
const HEAD: Duration = Duration::from_secs(20);
/// Bytes that the head of a request may take.
const HEAD_BYTES: usize = 32 << 10;
/// Connections on which no request is being answered; the oldest gives way.
const MOST_IDLE: usize = 1024;
/// Pause after the system could not accept a connection: too many files are open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// Answers connections for ever.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let idle = Arc::new(Idle::default());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        // Nagle's algorithm would hold back the end of a frame for up to a round trip.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("a socket keeps Nagle's algorithm: {error}");
        }
        tokio::spawn(connection(stream, router.clone(), idle.clone()));
    }
}

async fn connection(stream: TcpStream, router: Router, idle: Arc<Idle>) {
    let give_way = CancellationToken::new();
    let place = Arc::new(Mutex::new(Some(Place::new(&idle, &give_way))));
    let token = give_way.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, place) = (router.clone(), place.clone());
        let busy = Busy { place: place.clone(), idle: idle.clone(), token: token.clone() };
        async move {
            // While a request is being answered, down to the last byte of the answer, the connection is not idle.
            drop(lock(&place).take());
            let response =
                router.oneshot(request.map(Body::new)).await.unwrap_or_else(|never| match never {});
            Ok::<_, Infallible>(response.map(|body| Answer { body, _busy: busy }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        result = connection => {
            if let Err(error) = result {
                tracing::trace!("a connection ended: {error}");
            }
        }
        () = give_way.cancelled() => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections on which no request is being answered, in the order in which they became so.
#[derive(Default)]
struct Idle {
    places: Mutex<(u64, BTreeMap<u64, CancellationToken>)>,
}

/// One of them, until it is dropped.
struct Place {
    idle: Arc<Idle>,
    number: u64,
}

impl Place {
    /// Where there are too many, the oldest gives way.
    fn new(idle: &Arc<Idle>, token: &CancellationToken) -> Self {
        let (next, places) = &mut *lock(&idle.places);
        *next += 1;
        places.insert(*next, token.clone());
        if places.len() > MOST_IDLE
            && let Some((_, oldest)) = places.pop_first()
        {
            oldest.cancel();
        }
        Self { idle: idle.clone(), number: *next }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.idle.places).1.remove(&self.number);
    }
}

/// A request being answered; when it is dropped the connection is idle again.
struct Busy {
    place: Arc<Mutex<Option<Place>>>,
    idle: Arc<Idle>,
    token: CancellationToken,
}

impl Drop for Busy {
    fn drop(&mut self) {
        *lock(&self.place) = Some(Place::new(&self.idle, &self.token));
    }
}

/// The body of an answer.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
