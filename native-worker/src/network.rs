//! WebSocket connections on the IO runtime, as queues for the session.

use engine::session::host::{self, HostError};
use futures::{SinkExt, StreamExt};
use protocol::{SUBPROTOCOL, frame::MAX_FRAME};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc, oneshot},
    task::JoinHandle,
};
use tokio_tungstenite::{
    connect_async_with_config,
    tungstenite::{
        Message,
        client::IntoClientRequest,
        http::{HeaderValue, header},
        protocol::WebSocketConfig,
    },
};

use crate::link::Link;

/// Frames that may wait in either direction. A full queue stops the socket, and so the sender.
const QUEUE: usize = 64;

pub struct Network {
    link: Link,
    io: Handle,
}

impl Network {
    pub fn new(link: Link, io: Handle) -> Self {
        Self { link, io }
    }
}

impl host::Network for Network {
    type Transport = Transport;

    async fn connect(&self) -> Result<Transport, HostError> {
        let link = self.link.clone();
        let connected = self.io.spawn(async move { open(&link).await }).await;
        connected.map_err(|e| HostError(e.to_string()))?
    }
}

pub struct Transport {
    outbox: mpsc::Sender<Message>,
    inbox: Mutex<mpsc::Receiver<Vec<u8>>>,
    writer: Mutex<Option<oneshot::Receiver<()>>>,
    reader: JoinHandle<()>,
}

async fn open(link: &Link) -> Result<Transport, HostError> {
    let words = |e: &dyn std::fmt::Display| HostError(format!("{} cannot be reached: {e}", link.session()));
    let mut request = link.session().into_client_request().map_err(|e| words(&e))?;
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let config = WebSocketConfig::default().max_message_size(Some(MAX_FRAME)).max_frame_size(Some(MAX_FRAME));
    // Nagle's algorithm would hold back small frames such as reports.
    let (socket, _) = connect_async_with_config(request, Some(config), true).await.map_err(|e| words(&e))?;
    let (mut sink, mut stream) = socket.split();
    let (outbox, mut to_send) = mpsc::channel::<Message>(QUEUE);
    let (received, inbox) = mpsc::channel(QUEUE);
    let (written, writer) = oneshot::channel();
    tokio::spawn(async move {
        while let Some(message) = to_send.recv().await {
            if sink.send(message).await.is_err() {
                break;
            }
        }
        let _ = sink.close().await;
        let _ = written.send(());
    });
    let reader = tokio::spawn(async move {
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(bytes) = message
                && received.send(bytes.into()).await.is_err()
            {
                break;
            }
        }
    });
    Ok(Transport { outbox, inbox: Mutex::new(inbox), writer: Mutex::new(Some(writer)), reader })
}

fn closed() -> HostError {
    HostError("the connection to the coordinator was lost".into())
}

impl host::Transport for Transport {
    async fn send(&self, frame: Vec<u8>) -> Result<(), HostError> {
        self.outbox.send(Message::Binary(frame.into())).await.map_err(|_| closed())
    }

    async fn receive(&self) -> Result<Vec<u8>, HostError> {
        self.inbox.lock().await.recv().await.ok_or_else(closed)
    }

    fn try_receive(&self) -> Result<Option<Vec<u8>>, HostError> {
        let Ok(mut inbox) = self.inbox.try_lock() else { return Ok(None) };
        match inbox.try_recv() {
            Ok(frame) => Ok(Some(frame)),
            Err(mpsc::error::TryRecvError::Empty) => Ok(None),
            Err(mpsc::error::TryRecvError::Disconnected) => Err(closed()),
        }
    }

    async fn finish(&self) {
        let _ = self.outbox.send(Message::Close(None)).await;
        if let Some(writer) = self.writer.lock().await.take() {
            let _ = writer.await;
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
