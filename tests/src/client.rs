//! A client that speaks the protocol by itself: what it says is up to the test.

use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use futures::{SinkExt, StreamExt};
use protocol::{
    SUBPROTOCOL, VERSION,
    blob::{BlobHash, BlobRef, CHUNK},
    frame,
    message::{
        Benchmark, Down, FromWorker, Header, Hello, PassSeconds, Profile, Refuse, ToWorker, Up, Welcome,
        WorkerKind,
    },
    refusal::Refusal,
    spec::Backend,
};
use reqwest::{StatusCode, header};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, client_async, connect_async,
    tungstenite::{
        self, Error,
        client::IntoClientRequest,
        http::{HeaderName, HeaderValue, Request},
    },
};

use crate::LIMIT;

/// One connection to `/v1/session`.
pub struct Client {
    /// For bytes that are no frame.
    pub socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    /// Connects to the coordinator at this `http://` address, and says nothing yet.
    ///
    /// # Errors
    /// When the connection is refused.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, &[]).await?.map_err(|status| anyhow::anyhow!("status {status}"))
    }

    /// The same with header fields that replace the usual ones. Gives the status where the upgrade is refused.
    ///
    /// # Errors
    /// When there is no connection at all.
    pub async fn connect_with(
        url: &str,
        fields: &[(&'static str, &str)],
    ) -> Result<Result<Self, StatusCode>> {
        let connected = connect_async(request(url, fields)?).await;
        Ok(Self::upgraded(connected)?.map_err(|response| response.status()))
    }

    /// Connects from another address of this computer, as somebody else would. Gives the answer where the upgrade is
    /// refused.
    ///
    /// # Errors
    /// When there is no connection at all.
    pub async fn connect_from(
        url: &str,
        address: IpAddr,
    ) -> Result<Result<Self, tungstenite::http::Response<Option<Vec<u8>>>>> {
        let stream = MaybeTlsStream::Plain(connection_from(url, address, None).await?);
        Self::upgraded(client_async(request(url, &[])?, stream).await)
    }

    fn upgraded(
        connected: Result<
            (WebSocketStream<MaybeTlsStream<TcpStream>>, tungstenite::handshake::client::Response),
            Error,
        >,
    ) -> Result<Result<Self, tungstenite::http::Response<Option<Vec<u8>>>>> {
        match connected {
            Ok((socket, response)) => {
                let spoken = response.headers().get("sec-websocket-protocol");
                ensure!(
                    spoken.is_some_and(|spoken| spoken == SUBPROTOCOL),
                    "another subprotocol: {spoken:?}"
                );
                Ok(Ok(Self { socket }))
            }
            Err(Error::Http(response)) => Ok(Err(*response)),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects and is let in.
    ///
    /// # Errors
    /// When it is not.
    pub async fn join(url: &str, name: &str) -> Result<(Self, Welcome)> {
        Self::connect(url).await?.let_in(name).await
    }

    /// Says hello and is let in.
    ///
    /// # Errors
    /// When it is not.
    pub async fn let_in(self, name: &str) -> Result<(Self, Welcome)> {
        let mut client = self;
        client.say(hello(VERSION, name)).await?;
        let welcome = client.wait_for("Welcome", |message| match message {
            ToWorker::Down(Down::Welcome(welcome)) => Some(welcome),
            _ => None,
        });
        let welcome = welcome.await?;
        let asked = |message| matches!(message, ToWorker::Down(Down::Benchmark(Benchmark {}))).then_some(());
        client.wait_for("Benchmark", asked).await?;
        Ok((client, welcome))
    }

    /// Says something that keeps the protocol's rules.
    ///
    /// # Errors
    /// When it breaks them, or the connection is gone.
    pub async fn say(&mut self, message: impl Into<Up>) -> Result<()> {
        self.send(frame::encode(&FromWorker::Up(message.into()), &[])?).await
    }

    /// Sends these bytes as one message.
    ///
    /// # Errors
    /// When the connection is gone.
    pub async fn send(&mut self, bytes: Vec<u8>) -> Result<()> {
        Ok(self.socket.send(tungstenite::Message::Binary(bytes.into())).await?)
    }

    /// The next message; None at the end of the connection.
    ///
    /// # Errors
    /// When nothing comes within [`LIMIT`], or what comes is no message.
    pub async fn hear(&mut self) -> Result<Option<ToWorker>> {
        loop {
            let message = timeout(LIMIT, self.socket.next()).await.context("nothing comes")?;
            match message {
                None | Some(Err(_) | Ok(tungstenite::Message::Close(_))) => return Ok(None),
                Some(Ok(tungstenite::Message::Binary(bytes))) => {
                    return Ok(Some(frame::decode(&bytes)?.message));
                }
                Some(Ok(_)) => {}
            }
        }
    }

    /// Passes messages over until `find` finds something in one.
    ///
    /// # Errors
    /// When the connection ends before.
    pub async fn wait_for<T>(&mut self, what: &str, find: impl Fn(ToWorker) -> Option<T>) -> Result<T> {
        loop {
            match self.hear().await?.with_context(|| format!("the connection ended without {what}"))? {
                ToWorker::Down(Down::Refuse(Refuse(refusal))) => {
                    bail!("refused instead of {what}: {refusal}")
                }
                message => {
                    if let Some(found) = find(message) {
                        return Ok(found);
                    }
                }
            }
        }
    }

    /// Waits for the end of the connection. Gives the refusal that came before it, if one did; a worker that was let in
    /// is told other things too.
    ///
    /// # Errors
    /// When the connection stays open, or the client is given work.
    pub async fn end(&mut self) -> Result<Option<Refusal>> {
        let mut refused = None;
        while let Some(message) = self.hear().await? {
            match message {
                ToWorker::Down(Down::Refuse(Refuse(refusal))) => refused = Some(refusal),
                ToWorker::Down(
                    Down::Welcome(_) | Down::Benchmark(_) | Down::SnapshotKept(_) | Down::HeartbeatAnswer(_),
                ) => {}
                other => bail!("{} instead of the end", other.name()),
            }
        }
        Ok(refused)
    }

    /// The refusal with which the connection ends.
    ///
    /// # Errors
    /// As for [`Client::end`], or when it ends without one.
    pub async fn refusal(&mut self) -> Result<Refusal> {
        self.end().await?.context("closed without a refusal")
    }
}

/// The request for a session.
fn request(url: &str, fields: &[(&'static str, &str)]) -> Result<Request<()>> {
    let mut request = format!("{}/v1/session", url.replacen("http", "ws", 1)).into_client_request()?;
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(SUBPROTOCOL));
    for (name, value) in fields {
        headers.insert(HeaderName::from_static(name), value.parse()?);
    }
    Ok(request)
}

/// A connection to the coordinator from another address of this computer, such as 127.0.0.2: Linux lets it have all of
/// 127.0.0.0/8. With so small a buffer that hardly anything arrives unread, if asked for.
///
/// # Errors
/// When there is no connection.
pub async fn connection_from(url: &str, address: IpAddr, buffer: Option<u32>) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(bytes) = buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind((address, 0).into())?;
    Ok(socket.connect(url.trim_start_matches("http://").parse()?).await?)
}

/// A first message of this protocol version.
pub fn hello(protocol: u8, name: &str) -> Hello {
    Hello { protocol, build: "test".into(), kind: WorkerKind::Native, name: name.into() }
}

/// A profile that any run takes.
pub fn profile() -> Profile {
    let pass = PassSeconds { forward: 0.01, backward: 0.02 };
    Profile {
        backend: Backend::Cpu,
        device: "made up".into(),
        threads: 1,
        memory_bytes: 0,
        layer: pass,
        embedding: pass,
        head_seconds: 0.01,
        link: None,
    }
}

/// A frame as a program writes it that checks nothing.
///
/// # Errors
/// When postcard cannot write it.
pub fn unchecked(message: &impl Header, payload: &[u8]) -> Result<Vec<u8>> {
    let header = postcard::to_stdvec(message)?;
    let mut bytes = vec![VERSION];
    bytes.extend(u32::try_from(header.len())?.to_le_bytes());
    bytes.extend(header);
    bytes.extend(payload);
    Ok(bytes)
}

/// The first bytes of a WebSocket frame that announces so many: final, binary, masked with zeros, with a length of 64
/// bits.
pub fn start_of_frame(bytes: u64) -> Vec<u8> {
    [[0x82, 0xff].as_slice(), &bytes.to_be_bytes(), &[0; 4]].concat()
}

/// Puts one piece into the coordinator's store, from the first byte of a blob of `total` bytes on.
///
/// # Errors
/// When there is no answer.
pub async fn put_first_piece(
    url: &str,
    token: &str,
    hash: BlobHash,
    piece: Vec<u8>,
    total: usize,
) -> Result<StatusCode> {
    let range = format!("bytes 0-{}/{total}", piece.len().saturating_sub(1));
    let request = reqwest::Client::new().put(format!("{url}/v1/blobs/{hash}")).bearer_auth(token);
    Ok(request.header(header::CONTENT_RANGE, range).body(piece).send().await?.status())
}

/// Puts a blob that fits one piece into the store.
///
/// # Errors
/// When it is not taken.
pub async fn put(url: &str, token: &str, bytes: Vec<u8>) -> Result<BlobRef> {
    let (blob, total) = (BlobRef::of(&bytes), bytes.len());
    ensure!(total as u64 <= CHUNK, "{total} bytes are more than one piece");
    let status = put_first_piece(url, token, blob.hash, bytes, total).await?;
    ensure!(status == StatusCode::CREATED, "the upload was answered with {status}");
    Ok(blob)
}
