//! A worker that is asked to leave ends, whatever the other side does or does not do.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use futures::StreamExt;
use native_worker::{Options, work_until};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    time::timeout,
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        handshake::server::{ErrorResponse, Request, Response},
        http::header::SEC_WEBSOCKET_PROTOCOL,
    },
};

/// Far more than a worker may take: it used to wait for ever.
const LIMIT: Duration = Duration::from_secs(30);

/// Plays a coordinator with the first connection; the worker is asked to leave when `peer` says so, and must end while
/// `peer` still holds the connection.
async fn leaves<P: Future<Output = ()> + Send + 'static>(
    peer: impl FnOnce(TcpStream, oneshot::Sender<()>) -> P + Send + 'static,
) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (ask, asked) = oneshot::channel();
    let peer = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        peer(stream, ask).await;
    });
    let options = Options { url, authority: None, backend: None, name: "leaving".into(), memory_bytes: None };
    let worker = tokio::task::spawn_blocking(move || {
        work_until(options, async {
            asked.await.unwrap();
        })
    });
    timeout(LIMIT, worker).await.expect("it does not end").unwrap().unwrap();
    peer.abort();
}

/// Answers the upgrade to a WebSocket.
async fn upgrade(stream: TcpStream) -> tokio_tungstenite::WebSocketStream<TcpStream> {
    #[expect(clippy::result_large_err, reason = "the signature is tungstenite's")]
    let answer = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        let protocol = request.headers()[SEC_WEBSOCKET_PROTOCOL].clone();
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        Ok(response)
    };
    accept_hdr_async(stream, answer).await.unwrap()
}

#[tokio::test]
async fn towards_a_port_that_takes_connections_and_never_answers() {
    leaves(async |stream, ask| {
        ask.send(()).unwrap();
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
}

#[tokio::test]
async fn while_the_coordinator_does_not_answer_hello() {
    leaves(async |stream, ask| {
        let mut socket = upgrade(stream).await;
        socket.next().await.unwrap().unwrap();
        ask.send(()).unwrap();
        // It neither reads on nor closes.
        std::future::pending::<()>().await;
        drop(socket);
    })
    .await;
}

#[tokio::test]
async fn while_waiting_to_connect_again() {
    leaves(async |stream, ask| {
        let mut socket = upgrade(stream).await;
        socket.next().await.unwrap().unwrap();
        drop(socket);
        ask.send(()).unwrap();
    })
    .await;
}
