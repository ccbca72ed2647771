//! WebSocket connections on the IO runtime, as queues for the session.

use std::{cell::RefCell, sync::Arc};

use futures::{SinkExt, StreamExt};
use protocol::{SUBPROTOCOL, frame::MAX_FRAME};
use rustls::{CertificateError, ClientConfig};
use tokio::{runtime::Handle, sync::Mutex};
use tokio_tungstenite::{
    Connector, connect_async_tls_with_config,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        http::{HeaderValue, StatusCode, header},
        protocol::WebSocketConfig,
    },
};
use worker::platform::{self, PlatformError};

use crate::{
    io::Task,
    link::Link,
    queue::{Receiver, Sender, queue},
};

/// Connects to one coordinator.
pub(crate) struct Network {
    link: Link,
    tls: Arc<ClientConfig>,
    io: Handle,
}

impl Network {
    pub(crate) fn new(link: Link, tls: Arc<ClientConfig>, io: Handle) -> Self {
        Self { link, tls, io }
    }
}

impl platform::Network for Network {
    type Transport = Transport;

    async fn connect(&self) -> Result<Transport, PlatformError> {
        let (link, tls, io) = (self.link.clone(), self.tls.clone(), self.io.clone());
        let connected = Task::spawn(&self.io, async move { open(&link, tls, &io).await }).await;
        connected.map_err(|error| PlatformError(error.to_string()))?
    }
}

/// A connection: a task that writes and one that reads, which end with it.
pub(crate) struct Transport {
    /// None once closing.
    outbox: RefCell<Option<Sender>>,
    inbox: Mutex<Receiver>,
    writer: RefCell<Option<Task<()>>>,
    _reader: Task<()>,
}

async fn open(link: &Link, tls: Arc<ClientConfig>, io: &Handle) -> Result<Transport, PlatformError> {
    let words = |error: &dyn std::fmt::Display| {
        PlatformError(format!("{} cannot be reached: {error}", link.session()))
    };
    let mut request = link.session().into_client_request().map_err(|error| words(&error))?;
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let config = WebSocketConfig::default().max_message_size(Some(MAX_FRAME)).max_frame_size(Some(MAX_FRAME));
    // Nagle's algorithm would hold back small frames such as reports.
    let connector = Some(Connector::Rustls(tls));
    let connected = connect_async_tls_with_config(request, Some(config), true, connector).await;
    let (socket, _) = connected.map_err(|error| {
        match &error {
        Error::Http(answer) if answer.status() == StatusCode::PERMANENT_REDIRECT => {
            PlatformError("the coordinator speaks https; use its https link".into())
        }
        Error::Io(io) if is_unknown_authority(io) => PlatformError(
            "the coordinator's certificate is of an authority that this computer does not know; name it with \
             --authority, as a file from the coordinator's data folder (tls/authority.pem)"
                .into(),
        ),
        error => words(error),
    }
    })?;
    let (mut sink, mut stream) = socket.split();
    let (outbox, mut to_send) = queue();
    let (received, inbox) = queue();
    let writer = Task::spawn(io, async move {
        while let Some(queued) = to_send.recv().await {
            if sink.send(Message::Binary(queued.frame.into())).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    });
    let reader = Task::spawn(io, async move {
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(bytes) = message
                && !received.send(bytes.into()).await
            {
                break;
            }
        }
    });
    Ok(Transport {
        outbox: RefCell::new(Some(outbox)),
        inbox: Mutex::new(inbox),
        writer: RefCell::new(Some(writer)),
        _reader: reader,
    })
}

fn is_unknown_authority(error: &std::io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)))
}

fn closed() -> PlatformError {
    PlatformError("the connection to the coordinator was lost".into())
}

impl platform::Transport for Transport {
    async fn send(&self, frame: Vec<u8>) -> Result<(), PlatformError> {
        let outbox = self.outbox.borrow().clone();
        match outbox {
            Some(outbox) if outbox.send(frame).await => Ok(()),
            _ => Err(closed()),
        }
    }

    async fn receive(&self) -> Result<Vec<u8>, PlatformError> {
        self.inbox.lock().await.recv().await.map(|queued| queued.frame).ok_or_else(closed)
    }

    async fn finish(&self) {
        // The writer ends, and closes the socket, once the queue is empty and can no longer be filled.
        self.outbox.borrow_mut().take();
        let writer = self.writer.borrow_mut().take();
        if let Some(writer) = writer {
            let _ = writer.await;
        }
    }
}
