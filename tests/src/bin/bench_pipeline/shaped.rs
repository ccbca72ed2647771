//! A WebSocket whose frames travel as over a slow link: so many bytes a second, so long a way, now and then late.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{SinkExt, StreamExt};
use protocol::{SUBPROTOCOL, frame::MAX_FRAME};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
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

/// Frames that may be on their way in one direction.
const ON_THE_WAY: usize = 1024;

/// Both directions alike.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub round_trip: Duration,
    pub bytes_per_second: f64,
    /// One frame in this many is as late as one whose packet was lost and sent again; those behind it wait.
    pub lost_one_in: u64,
    /// By this much.
    pub retransmission: Duration,
}

pub struct Shaped {
    out: mpsc::Sender<Vec<u8>>,
    inbox: mpsc::Receiver<Vec<u8>>,
}

impl Shaped {
    pub async fn connect(url: &str, link: Link, seed: u64) -> Result<Self> {
        let mut request = url.into_client_request()?;
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
        let config =
            WebSocketConfig::default().max_message_size(Some(MAX_FRAME)).max_frame_size(Some(MAX_FRAME));
        let (socket, _) = connect_async_with_config(request, Some(config), true).await?;
        let (mut sink, mut stream) = socket.split();
        let (out, to_send) = mpsc::channel(ON_THE_WAY);
        let (to_write, mut sent) = mpsc::channel::<Vec<u8>>(ON_THE_WAY);
        tokio::spawn(way(link, seed, to_send, to_write));
        tokio::spawn(async move {
            while let Some(frame) = sent.recv().await {
                if sink.send(Message::Binary(frame.into())).await.is_err() {
                    break;
                }
            }
        });
        let (received, from_socket) = mpsc::channel(ON_THE_WAY);
        let (arrived, inbox) = mpsc::channel(ON_THE_WAY);
        tokio::spawn(way(link, seed ^ 1, from_socket, arrived));
        tokio::spawn(async move {
            while let Some(Ok(message)) = stream.next().await {
                if let Message::Binary(bytes) = message
                    && received.send(bytes.into()).await.is_err()
                {
                    break;
                }
            }
        });
        Ok(Self { out, inbox })
    }

    /// Hand a frame over; it leaves when those before it have.
    pub async fn send(&self, frame: Vec<u8>) -> Result<()> {
        self.out.send(frame).await.context("the connection is closed")
    }

    pub async fn receive(&mut self) -> Result<Vec<u8>> {
        self.inbox.recv().await.context("the connection is closed")
    }

    pub fn try_receive(&mut self) -> Option<Vec<u8>> {
        self.inbox.try_recv().ok()
    }
}

/// One direction: frames leave one after the other, then travel side by side, and arrive in order.
async fn way(link: Link, seed: u64, mut from: mpsc::Receiver<Vec<u8>>, to: mpsc::Sender<Vec<u8>>) {
    let (travelling, mut arriving) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    tokio::spawn(async move {
        while let Some((at, frame)) = arriving.recv().await {
            sleep_until(at).await;
            if to.send(frame).await.is_err() {
                break;
            }
        }
    });
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut free = Instant::now();
    while let Some(frame) = from.recv().await {
        let seconds = frame.len() as f64 / link.bytes_per_second;
        free = free.max(Instant::now()) + Duration::from_secs_f64(seconds);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let lost = random.is_multiple_of(link.lost_one_in);
        let late = if lost { link.retransmission } else { Duration::ZERO };
        sleep_until(free).await;
        if travelling.send((free + link.round_trip / 2 + late, frame)).await.is_err() {
            break;
        }
    }
}
