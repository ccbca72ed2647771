//! The least that a relay can do: a process that passes every message between two sockets on.

use std::{env, time::Duration};

use anyhow::{Context, Result};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use protocol::frame::MAX_FRAME;
use tests::process::Process;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

/// The argument with which this program is the forwarder.
pub const FORWARDER: &str = "forwarder";
const LISTENING: &str = "forwarding on ";
const START: Duration = Duration::from_secs(30);
/// Frames that may wait, as in the coordinator.
const QUEUE: usize = 32;

pub struct Forwarder {
    pub pid: u32,
    /// `http://127.0.0.1:PORT`
    pub url: String,
    _process: Process,
}

impl Forwarder {
    pub async fn start() -> Result<Self> {
        let mut process = Process::start(FORWARDER, &env::current_exe()?, |command| {
            command.arg(FORWARDER);
        })?;
        let told = |line: &str| {
            let (pid, url) = line.strip_prefix(LISTENING)?.split_once(' ')?;
            Some((pid.parse().ok()?, url.to_owned()))
        };
        let (pid, url) = process.wait_for_line("where it listens", START, told).await?;
        Ok(Self { pid, url, _process: process })
    }
}

/// Takes two connections, and forwards until either ends.
pub async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{LISTENING}{} http://{}", std::process::id(), listener.local_addr()?);
    let (first, second) = (accept(&listener).await?, accept(&listener).await?);
    let ((to_first, from_first), (to_second, from_second)) = (first.split(), second.split());
    tokio::select! {
        result = pass(from_first, to_second) => result,
        result = pass(from_second, to_first) => result,
    }
}

async fn accept(listener: &TcpListener) -> Result<WebSocketStream<TcpStream>> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let config = WebSocketConfig::default().max_message_size(Some(MAX_FRAME)).max_frame_size(Some(MAX_FRAME));
    Ok(accept_async_with_config(stream, Some(config)).await?)
}

async fn pass(
    mut from: SplitStream<WebSocketStream<TcpStream>>,
    mut to: SplitSink<WebSocketStream<TcpStream>, Message>,
) -> Result<()> {
    let (queue, mut queued) = mpsc::channel(QUEUE);
    let reader = tokio::spawn(async move {
        while let Some(Ok(message)) = from.next().await {
            if message.is_binary() && queue.send(message).await.is_err() {
                break;
            }
        }
    });
    let writer = tokio::spawn(async move {
        while let Some(message) = queued.recv().await {
            to.send(message).await?;
        }
        anyhow::Ok(())
    });
    reader.await.context("the reader has panicked")?;
    writer.await.context("the writer has panicked")?
}
