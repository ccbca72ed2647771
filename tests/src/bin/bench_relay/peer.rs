//! One end of a relayed connection: a worker that computes nothing.

use anyhow::{Context, Result, bail};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use protocol::{
    SUBPROTOCOL, VERSION,
    frame::{self, MAX_FRAME},
    message::{
        Assign, DeviceStatus, Down, FromWorker, Header, Hello, PassSeconds, Profile, Ready, Refuse,
        StepReport, Timings, ToWorker, Up, WorkerKind,
    },
    spec::{Assignment, Backend},
};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{self, client::IntoClientRequest, protocol::WebSocketConfig},
};

type Socket = WebSocketStream<TcpStream>;

pub struct Peer {
    pub sink: Sink,
    pub stream: Stream,
}

pub struct Sink(SplitSink<Socket, tungstenite::Message>);

pub struct Stream(SplitStream<Socket>);

fn config() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MAX_FRAME)).max_frame_size(Some(MAX_FRAME))
}

impl Peer {
    /// Connects to the coordinator at `http://HOST:PORT`.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, Some(SUBPROTOCOL), config()).await
    }

    /// The forwarder agrees on no subprotocol.
    pub async fn connect_to_forwarder(url: &str) -> Result<Self> {
        Self::connect_with(url, None, config()).await
    }

    pub async fn connect_with(url: &str, subprotocol: Option<&str>, config: WebSocketConfig) -> Result<Self> {
        let host = url.strip_prefix("http://").with_context(|| format!("{url} is not a link"))?;
        let mut request = format!("ws://{host}/v1/session").into_client_request()?;
        if let Some(subprotocol) = subprotocol {
            request.headers_mut().insert("sec-websocket-protocol", subprotocol.parse()?);
        }
        let stream = TcpStream::connect(host).await.with_context(|| format!("cannot connect to {url}"))?;
        stream.set_nodelay(true)?; // as native workers and browsers do
        let (socket, _) = client_async_with_config(request, stream, Some(config)).await?;
        let (sink, stream) = socket.split();
        Ok(Self { sink: Sink(sink), stream: Stream(stream) })
    }

    pub async fn say(&mut self, message: impl Into<Up>) -> Result<()> {
        self.sink.send(frame::encode(&FromWorker::Up(message.into()), &[])?).await
    }

    pub async fn hello(&mut self) -> Result<()> {
        let hello = Hello {
            protocol: VERSION,
            build: "bench_relay".to_owned(),
            kind: WorkerKind::Native,
            name: "bench".to_owned(),
        };
        self.say(hello).await
    }

    /// Joins a run, with times that are made up.
    pub async fn join(url: &str) -> Result<Self> {
        let mut peer = Self::connect(url).await?;
        peer.hello().await?;
        let asked = |message| matches!(message, ToWorker::Down(Down::Benchmark(_))).then_some(());
        peer.stream.find("Benchmark", asked).await?;
        let pass = PassSeconds { forward: 0.01, backward: 0.02 };
        let profile = Profile {
            backend: Backend::Cpu,
            device: "none".to_owned(),
            threads: 1,
            memory_bytes: 0,
            layer: pass,
            embedding: pass,
            head_seconds: 0.01,
            link: None,
        };
        peer.say(profile).await?;
        Ok(peer)
    }

    /// Takes its stage, without any weights.
    pub async fn load(&mut self) -> Result<Assignment> {
        let assigned = |message| match message {
            ToWorker::Down(Down::Assign(Assign(assignment))) => Some(assignment),
            _ => None,
        };
        let assignment = self.stream.find("Assign", assigned).await?;
        self.say(Ready { epoch: assignment.epoch }).await?;
        Ok(assignment)
    }

    /// Reports a step as done.
    pub async fn report(&mut self, epoch: u64, step: u64, losses: u32) -> Result<()> {
        let report = StepReport {
            epoch,
            step,
            squared_norm: 1.0,
            losses: vec![1.0; losses as usize],
            timings: Timings::default(),
            status: DeviceStatus::default(),
        };
        self.say(report).await
    }
}

impl Sink {
    pub async fn send(&mut self, frame: Vec<u8>) -> Result<()> {
        Ok(self.0.send(tungstenite::Message::Binary(frame.into())).await?)
    }
}

impl Stream {
    /// The next message, but for words that the coordinator is there; refusals and the end of the connection are errors.
    pub async fn hear(&mut self) -> Result<ToWorker> {
        loop {
            match self.0.next().await.context("the connection was closed")?? {
                tungstenite::Message::Binary(bytes) => match frame::decode(&bytes)?.message {
                    ToWorker::Down(Down::HeartbeatAnswer(_)) => {}
                    ToWorker::Down(Down::Refuse(Refuse(refusal))) => bail!("refused: {refusal}"),
                    message => return Ok(message),
                },
                tungstenite::Message::Close(_) => bail!("the connection was closed"),
                _ => {}
            }
        }
    }

    /// Skips messages until `find` finds something in one.
    pub async fn find<T>(&mut self, what: &str, find: impl Fn(ToWorker) -> Option<T>) -> Result<T> {
        loop {
            let message = self.hear().await.with_context(|| format!("waiting for {what}"))?;
            if matches!(message, ToWorker::Down(Down::Revoke(_) | Down::Drain(_))) {
                bail!("{} instead of {what}", message.name());
            }
            if let Some(found) = find(message) {
                return Ok(found);
            }
        }
    }
}
