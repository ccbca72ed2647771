//! Connections: accepted, bounded for each address and in all, and closed when they stand still.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::{HeaderMap, HeaderValue, header},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{
    limits::{Held, Refused, Used},
    permits::{Limits, Permit},
    places::{Place, Places},
    secured::{Secured, Security},
    watched::Watched,
};
use crate::address::{Address, may_be_proxy};

/// Time for the first byte, and then for the whole head of a request; a connection that is kept open without one ends after
/// it too.
const HEAD: Duration = Duration::from_secs(20);
/// Bytes that the head of a request may take.
const HEAD_BYTES: usize = 32 << 10;
/// Connections on which no request is being answered, of one address and of all; the oldest gives way.
const MOST_IDLE: [usize; 2] = [256, 1024];
/// Time in which a peer that is being answered must take a byte.
const UNREAD: Duration = Duration::from_secs(30);
/// Pause after the system could not accept a connection: too many files are open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// Answers connections for ever.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits, security: Option<Security>) {
    let answers = Answers { router, security };
    let idle = Places::new(MOST_IDLE[0], MOST_IDLE[1]);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
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
        let peer = Peer::new(peer.ip(), limits.behind_proxy);
        let permit = limits.take(peer.address, Held::Connection);
        tokio::spawn(connection(stream, answers.clone(), limits.clone(), idle.clone(), peer, permit));
    }
}

/// Who has connected.
#[derive(Debug, Clone, Copy)]
struct Peer {
    /// Whose connection it is. A proxy's is nobody's: it has as many as it has visitors.
    address: Address,
    is_proxy: bool,
}

impl Peer {
    fn new(peer: IpAddr, behind_proxy: bool) -> Self {
        let is_proxy = behind_proxy && may_be_proxy(peer);
        let address = if is_proxy { Address::Local } else { Address::of(peer) };
        Self { address, is_proxy }
    }

    /// Whose request it is.
    fn asks_for(self, headers: &HeaderMap) -> Address {
        match self.is_proxy {
            true => Address::forwarded(headers).unwrap_or(self.address),
            false => self.address,
        }
    }
}

/// What is answered at the port.
#[derive(Clone)]
struct Answers {
    router: Router,
    security: Option<Security>,
}

impl Answers {
    /// The connection, and what answers on it; None when it comes to nothing.
    async fn of(self, stream: TcpStream) -> Option<(Secured, Router)> {
        let Some(security) = self.security else { return Some((Secured::Plain(stream), self.router)) };
        match Secured::accept(stream, &security.acceptor).await? {
            plain @ Secured::Plain(_) => Some((plain, security.plain)),
            tls @ Secured::Tls(_) => Some((tls, self.router)),
        }
    }
}

async fn connection(
    stream: TcpStream,
    answers: Answers,
    limits: Limits,
    idle: Arc<Places>,
    peer: Peer,
    permit: Result<Permit, Refused>,
) {
    let give_way = CancellationToken::new();
    let place = Arc::new(Mutex::new(Some(idle.take(peer.address, give_way.clone()))));
    let token = give_way.clone();
    let accepted = tokio::select! {
        // Who sends nothing costs a socket and a timer: what answers is made when there is something to answer.
        accepted = async { first_byte(&stream).await?; answers.of(stream).await } => accepted,
        () = give_way.cancelled() => None,
    };
    let Some((stream, router)) = accepted else { return };
    let (permit, refused) = match permit {
        Ok(permit) => (Some(permit), None),
        Err(refused) => (None, Some(refused)),
    };
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (router, place) = (router.clone(), place.clone());
        let busy =
            Busy { place: place.clone(), idle: idle.clone(), address: peer.address, token: token.clone() };
        let asker = peer.asks_for(request.headers());
        // Before anything else looks at it: what is refused must cost little.
        let admitted = match &refused {
            Some(refused) => Err(refused.clone()),
            None => limits.try_use(asker, Used::Requests, cost(request.uri().path())),
        };
        let is_last = refused.is_some();
        request.extensions_mut().insert(asker);
        async move {
            // While a request is being answered, down to the last byte of the answer, the connection is not idle.
            drop(lock(&place).take());
            let mut response = match admitted {
                Ok(()) => {
                    let answer = router.oneshot(request.map(Body::new)).await;
                    answer.unwrap_or_else(|never| match never {})
                }
                Err(refused) => refused.answer(),
            };
            if is_last {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| Answer { body, _busy: busy }))
        }
    });
    let (io, waiting) = Watched::new(stream);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    // It ends when a WebSocket begins: how slow a worker may be, its session decides.
    tokio::select! {
        result = connection => {
            if let Err(error) = result {
                tracing::trace!("a connection ended: {error}");
            }
        }
        () = give_way.cancelled() => {}
        () = waiting.for_long(UNREAD) => tracing::debug!("a peer reads nothing of what it asked for"),
    }
    drop(permit);
}

/// Waits for something to read; None where nothing comes.
async fn first_byte(stream: &TcpStream) -> Option<()> {
    tokio::time::timeout(HEAD, stream.readable()).await.ok()?.ok()
}

/// What answering takes, in requests for a file of the page: as much again for each millisecond or so of computing.
fn cost(path: &str) -> f64 {
    match path {
        // The run's decisions, the log and all pages hear of a new worker.
        "/v1/session" => 20.0,
        "/metrics" | "/v1/run/curve" => 10.0,
        _ => 1.0,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request being answered; when it is dropped the connection is idle again.
struct Busy {
    place: Arc<Mutex<Option<Place>>>,
    idle: Arc<Places>,
    address: Address,
    token: CancellationToken,
}

impl Drop for Busy {
    fn drop(&mut self) {
        *lock(&self.place) = Some(self.idle.take(self.address, self.token.clone()));
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
