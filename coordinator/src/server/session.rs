//! One worker's WebSocket: frames in, frames out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    body::Bytes,
    extract::{
        State, WebSocketUpgrade,
        ws::{Message as Socket, WebSocket},
    },
    response::Response,
};
use futures::{SinkExt, StreamExt, stream::SplitSink, stream::SplitStream};
use protocol::{
    SUBPROTOCOL, VERSION, frame,
    message::{Hello, Message, Probe, Sender},
    refusal::Refusal,
};
use tokio::{
    sync::mpsc,
    time::{interval, timeout},
};

use super::{
    Shared,
    hub::{Outbox, Outgoing},
    relay_queue::{Queued, RelayQueue},
};
use crate::{
    run::event::{Event, WorkerId},
    token::random_token,
};

/// Time for the first message after connecting.
const HELLO: Duration = Duration::from_secs(10);
/// Between two pings, which measure the round trip.
const PING: Duration = Duration::from_secs(5);
/// Bytes renew a lease; the run machine need not hear of every frame.
const HEARD: Duration = Duration::from_secs(1);
/// Bytes read at a time. Each session holds so much from its first frame on; larger ones are no faster.
const READ_BUFFER: usize = 16 << 10;
/// Time for a refusal to leave before the socket is dropped.
const FAREWELL: Duration = Duration::from_secs(5);

/// Numbers of workers of this process.
static NEXT_WORKER: AtomicU64 = AtomicU64::new(1);

pub async fn upgrade(State(shared): State<Arc<Shared>>, socket: WebSocketUpgrade) -> Response {
    socket
        .protocols([SUBPROTOCOL])
        .read_buffer_size(READ_BUFFER)
        .max_message_size(frame::MAX_FRAME)
        .max_frame_size(frame::MAX_FRAME)
        .on_upgrade(move |socket| serve(shared, socket))
}

async fn serve(shared: Arc<Shared>, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let hello = match timeout(HELLO, hello(&mut stream)).await {
        Ok(Ok(Some(hello))) => hello,
        Ok(Ok(None)) => return,
        Ok(Err(refusal)) => {
            let _ = shared.events.send(Event::Refused { worker: None, refusal: refusal.clone() }).await;
            return refuse(&mut sink, &refusal).await;
        }
        Err(_) => {
            let detail = format!("no Hello came within {} s of connecting", HELLO.as_secs());
            return refuse(&mut sink, &Refusal::Unexpected { message: "Silence".into(), detail }).await;
        }
    };
    let worker = WorkerId(NEXT_WORKER.fetch_add(1, Ordering::Relaxed));
    let token = random_token();
    let (control, control_queue) = mpsc::unbounded_channel();
    let (relay, relay_queue) = RelayQueue::new();
    shared.hub.connect(worker, token.clone(), Outbox { control, relay: relay.clone() });
    let writer = tokio::spawn(write(sink, control_queue, relay_queue));
    let why = match shared.events.send(Event::Joined { worker, hello, token }).await {
        Ok(()) => read(&shared, worker, &relay, &mut stream).await,
        Err(_) => Ok("the coordinator is going down".into()),
    };
    match why {
        Ok(why) => {
            let _ = shared.events.send(Event::Gone { worker, why }).await;
        }
        Err(refusal) => {
            let why = refusal.to_string();
            let refused = Event::Refused { worker: Some(worker), refusal: refusal.clone() };
            let _ = shared.events.send(refused).await;
            shared.hub.send(worker, Outgoing::Close(refusal));
            let _ = shared.events.send(Event::Gone { worker, why }).await;
        }
    }
    drop(relay);
    shared.hub.disconnect(worker);
    // The writer ends by itself: its queues are closed, or it was told to close.
    let _ = timeout(FAREWELL, writer).await;
}

/// The first message; None when the socket closes instead.
async fn hello(stream: &mut SplitStream<WebSocket>) -> Result<Option<Hello>, Refusal> {
    while let Some(message) = stream.next().await {
        let message = match message {
            Ok(message) => message,
            Err(e) => return broken(&e.to_string()).map(|_| None),
        };
        let Some(bytes) = binary(message)? else { continue };
        return match frame::decode(&bytes)?.message {
            Message::Hello(hello) if hello.protocol == VERSION => Ok(Some(hello)),
            Message::Hello(hello) => Err(Refusal::Version { theirs: hello.protocol, ours: VERSION }),
            other => Err(Refusal::Unexpected {
                message: other.name().into(),
                detail: "the first message must be Hello".into(),
            }),
        };
    }
    Ok(None)
}

fn binary(message: Socket) -> Result<Option<Bytes>, Refusal> {
    match message {
        Socket::Binary(bytes) => Ok(Some(bytes)),
        Socket::Text(_) => {
            Err(Refusal::Malformed { detail: "text came where a binary frame is expected".into() })
        }
        Socket::Ping(_) | Socket::Pong(_) | Socket::Close(_) => Ok(None),
    }
}

/// Read until the socket closes (Ok, with the reason) or something must be refused.
async fn read(
    shared: &Shared,
    worker: WorkerId,
    own: &RelayQueue,
    stream: &mut SplitStream<WebSocket>,
) -> Result<String, Refusal> {
    let closing = || Ok("the coordinator is going down".to_string());
    let mut heard = Instant::now();
    loop {
        let message = match stream.next().await {
            None => return Ok("the connection was closed".into()),
            Some(Err(e)) => return broken(&e.to_string()),
            Some(Ok(Socket::Close(_))) => return Ok("the connection was closed".into()),
            Some(Ok(message)) => message,
        };
        if let Socket::Pong(payload) = &message
            && let Some(rtt) = round_trip(payload)
        {
            let _ = shared.events.try_send(Event::Measured { worker, rtt });
        }
        let Some(bytes) = binary(message)? else { continue };
        let message = frame::decode(&bytes)?.message;
        if message.sender() == Sender::Coordinator {
            let detail = "only the coordinator says this".into();
            return Err(Refusal::Unexpected { message: message.name().into(), detail });
        }
        if let Message::Probe(Probe { number, answer, .. }) = message {
            let answer = Message::ProbeAnswer { number, padding: answer };
            let padding = vec![0; answer.padding() as usize];
            // Bounded like relayed frames: who asks for much and reads little is not read.
            own.send(frame::encode(&answer, &padding)?.into()).await;
            continue;
        }
        if message.tensor().is_none() {
            shared.hub.count_up(worker, bytes.len() as u64);
            heard = Instant::now();
            if shared.events.send(Event::Said { worker, message }).await.is_err() {
                return closing();
            }
            continue;
        }
        if heard.elapsed() > HEARD {
            heard = Instant::now();
            let _ = shared.events.try_send(Event::Heard { worker });
        }
        if let Some(outbox) = shared.hub.admit(worker, &message, bytes.len())? {
            // Waits while the receiver is slow. A receiver that has gone takes nothing.
            outbox.relay.send(bytes).await;
        }
    }
}

/// tungstenite reports a too large message as an error of the stream.
fn broken(error: &str) -> Result<String, Refusal> {
    if error.contains("too long") || error.contains("too large") {
        return Err(Refusal::Oversized {
            bytes: frame::MAX_FRAME as u64 + 1,
            limit: frame::MAX_FRAME as u64,
        });
    }
    Ok(format!("the connection broke: {error}"))
}

/// Pings carry the time they were sent, in nanoseconds of this process.
fn clock() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

fn round_trip(payload: &[u8]) -> Option<Duration> {
    let sent = u64::from_le_bytes(payload.try_into().ok()?);
    Some(Duration::from_nanos(clock().checked_sub(sent)?))
}

/// Write what is queued: the coordinator's own messages before relayed ones.
///
/// An Apply must not wait behind tensors of the step after it, and frames of a plan that ended are told
/// apart by their epoch; so the order between the queues does not matter otherwise.
async fn write(
    mut sink: SplitSink<WebSocket, Socket>,
    mut control: mpsc::UnboundedReceiver<Outgoing>,
    mut relay: mpsc::Receiver<Queued>,
) {
    let mut pings = interval(PING);
    loop {
        let frame = tokio::select! {
            biased;
            outgoing = control.recv() => match outgoing {
                Some(Outgoing::Frame(bytes)) => Socket::Binary(bytes),
                Some(Outgoing::Close(refusal)) => return refuse(&mut sink, &refusal).await,
                None => break,
            },
            Some(queued) = relay.recv() => {
                // Its room is given back once it is written.
                if sink.send(Socket::Binary(queued.bytes)).await.is_err() {
                    return;
                }
                continue;
            }
            _ = pings.tick() => Socket::Ping(Bytes::copy_from_slice(&clock().to_le_bytes())),
        };
        if sink.send(frame).await.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}

async fn refuse(sink: &mut SplitSink<WebSocket, Socket>, refusal: &Refusal) {
    if let Ok(bytes) = frame::encode(&Message::Refuse(refusal.clone()), &[]) {
        let _ = sink.send(Socket::Binary(bytes.into())).await;
    }
    let _ = sink.close().await;
}
