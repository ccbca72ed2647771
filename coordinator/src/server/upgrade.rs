//! From an HTTP request to a WebSocket whose reads are bounded until the worker has said Hello.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use hyper_util::rt::TokioIo;
use protocol::SUBPROTOCOL;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use super::answers::problem;

/// Bytes read at a time. Each session holds so much from its first frame on; larger ones are no faster.
const READ_BUFFER: usize = 16 << 10;
/// Bytes that may be read before Hello.
const BEFORE_HELLO: usize = 8 << 10;

/// A connection after the upgrade.
pub(super) type Socket = WebSocketStream<Bounded<TokioIo<hyper::upgrade::Upgraded>>>;

/// What may still be read of a connection.
#[derive(Debug, Clone)]
pub(super) struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    fn before_hello() -> Self {
        Self(Arc::new(AtomicUsize::new(BEFORE_HELLO)))
    }

    /// From now on anything may be read.
    pub(super) fn lift(&self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }

    /// Whether everything allowed has been read.
    pub(super) fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Answers an upgrade, and runs `serve` on the connection that comes of it.
pub(super) fn to_websocket<F>(
    mut request: Request,
    largest_frame: usize,
    serve: impl FnOnce(Socket, Allowance) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let refuse = |words| problem(StatusCode::BAD_REQUEST, words);
    let headers = request.headers();
    if !has_token(headers, header::CONNECTION, "upgrade") || !has_token(headers, header::UPGRADE, "websocket")
    {
        let mut response = problem(StatusCode::UPGRADE_REQUIRED, "workers connect here by WebSocket");
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        return response;
    }
    if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return refuse("Sec-WebSocket-Version must be 13");
    }
    let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY) else {
        return refuse("Sec-WebSocket-Key is missing");
    };
    let accept = derive_accept_key(key.as_bytes());
    let subprotocol = has_token(headers, header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
    let Some(upgrade) = request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>() else {
        return refuse("this connection cannot be upgraded");
    };
    tokio::spawn(async move {
        let upgraded = match upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!("an upgrade failed: {error}"),
        };
        let allowance = Allowance::before_hello();
        let io = Bounded { io: TokioIo::new(upgraded), allowance: allowance.clone() };
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .max_message_size(Some(largest_frame))
            .max_frame_size(Some(largest_frame));
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        serve(socket, allowance).await;
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        fields.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if subprotocol {
        fields.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    }
    response
}

/// Whether a list in a header has this entry.
fn has_token(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    let lists = headers.get_all(name);
    lists
        .iter()
        .filter_map(|list| list.to_str().ok())
        .any(|list| list.split(',').any(|entry| entry.trim().eq_ignore_ascii_case(token)))
}

/// A connection of which no more is read than its allowance.
pub(super) struct Bounded<T> {
    io: T,
    allowance: Allowance,
}

impl<T: AsyncRead + Unpin> AsyncRead for Bounded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.allowance.0.load(Ordering::Relaxed);
        if left == usize::MAX {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        if left == 0 {
            return Poll::Ready(Err(io::Error::other("more than a Hello came before Hello")));
        }
        let mut part = [0; 1024];
        let room = left.min(part.len()).min(buffer.remaining());
        let mut part = ReadBuf::new(&mut part[..room]);
        match Pin::new(&mut self.io).poll_read(context, &mut part) {
            Poll::Ready(Ok(())) => {}
            other => return other,
        }
        let read = part.filled();
        buffer.put_slice(read);
        // Fails when the allowance has been lifted meanwhile.
        let rest = left - read.len();
        let _ = self.allowance.0.compare_exchange(left, rest, Ordering::Relaxed, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Bounded<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
