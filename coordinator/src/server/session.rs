//! One worker's session: reader, writer, token and place in the hub end together, whoever ends it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use axum::{
    body::Bytes,
    extract::{Request, State},
    response::Response,
};
use control::Event;
use futures::{SinkExt, StreamExt, stream::SplitSink, stream::SplitStream};
use protocol::{
    VERSION, frame,
    message::{FromWorker, Header, HeartbeatAnswer, Hello, Probe, ProbeAnswer, Refuse, ToWorker, Up},
    refusal::Refusal,
    worker_id::WorkerId,
};
use tokio::{
    sync::mpsc,
    time::{interval, timeout},
};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message, error::CapacityError};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Shared,
    guard::asker,
    hub::{Outbox, Outgoing, Queue},
    limits::{Held, Rate, Refused, Used},
    permits::Permit,
    relay_queue::{Queued, RelayQueue},
    token::random_token,
    upgrade::{Allowance, Socket, to_websocket},
};
use crate::address::Address;

/// Time for the first message after connecting.
const HELLO: Duration = Duration::from_secs(10);
/// Between two pings, which measure the round trip.
const PING: Duration = Duration::from_secs(5);
/// Bytes renew a lease; the run need not hear of every frame.
const HEARD: Duration = Duration::from_secs(1);
/// No run asks for more heartbeats than one in so long; more are not passed on.
const HEARTBEAT: Duration = Duration::from_millis(10);
/// Time for a refusal to leave before the socket is dropped.
const FAREWELL: Duration = Duration::from_secs(5);
/// Bytes that a worker may have sent back for its probes: a probe costs the one who asks as much as it costs here, but
/// for its answer.
const PROBES: Rate = Rate { per_second: 0.4e6, burst: 48e6 };
/// What a worker may say to the run: it reports once a step, and the smallest steps take a few milliseconds. Who says more
/// is read later.
const MESSAGES: Rate = Rate { per_second: 500.0, burst: 2000.0 };

pub(super) async fn upgrade(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (largest, address) = (shared.largest_frame, asker(&request));
    let handshake = match shared.limits.take(address, Held::Handshake) {
        Ok(permit) => permit,
        Err(refused) => return refused.answer(),
    };
    to_websocket(request, largest, move |socket, allowance| {
        serve(shared, socket, allowance, address, handshake)
    })
}

async fn serve(
    shared: Arc<Shared>,
    socket: Socket,
    allowance: Allowance,
    address: Address,
    handshake: Permit,
) {
    let (mut sink, mut stream) = socket.split();
    let (place, replaced) = shared.hub.wait_for_hello(address);
    let hello = tokio::select! {
        hello = timeout(HELLO, hello(&mut stream, &allowance, shared.largest_frame)) => hello,
        // Others came meanwhile, and there is no more room for connections without a Hello.
        () = replaced.cancelled() => return,
    };
    drop((place, handshake));
    let hello = match hello {
        Ok(Ok(Some(hello))) => shared.limits.take(address, Held::Session).map(|seat| (hello, seat)),
        Ok(Ok(None)) => return,
        Ok(Err(refusal)) => return turn_away(&shared, sink, refusal).await,
        Err(_) => {
            let detail = format!("no Hello came within {} s of connecting", HELLO.as_secs());
            let refusal = Refusal::Unexpected { message: "Silence".into(), detail };
            let _ = timeout(FAREWELL, refuse(&mut sink, refusal)).await;
            return;
        }
    };
    let (hello, seat) = match hello {
        Ok(seated) => seated,
        Err(refused) => return turn_away(&shared, sink, refused.into()).await,
    };
    allowance.lift();
    let worker = WorkerId(shared.next_worker.fetch_add(1, Ordering::Relaxed));
    let span = tracing::info_span!("session", %worker);
    run(&shared, worker, address, hello, sink, stream).instrument(span).await;
    drop(seat);
}

/// Says why a connection gets no session.
async fn turn_away(shared: &Shared, mut sink: SplitSink<Socket, Message>, refusal: Refusal) {
    let refused = Event::Refused { worker: None, refusal: refusal.clone() };
    let _ = shared.events.send(refused).await;
    let _ = timeout(FAREWELL, refuse(&mut sink, refusal)).await;
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let seconds = u32::try_from(refused.after.as_secs() + 1).unwrap_or(u32::MAX);
        Refusal::Crowded { detail: refused.words, seconds }
    }
}

/// From the welcome to the end.
async fn run(
    shared: &Arc<Shared>,
    worker: WorkerId,
    address: Address,
    hello: Hello,
    sink: SplitSink<Socket, Message>,
    mut stream: SplitStream<Socket>,
) {
    let token = random_token();
    let ended = CancellationToken::new();
    let (control, control_queue) = Queue::new();
    let (relay, relay_queue) = RelayQueue::new();
    let outbox = Outbox { control: control.clone(), relay: relay.clone() };
    shared.hub.connect(worker, token.clone(), outbox, ended.clone());
    // Removes the worker from the hub and ends its token even if this task is dropped.
    let connected = Connected { shared, worker, ended: ended.clone() };
    let mut writer = tokio::spawn(write(sink, control_queue, relay_queue, ended.clone()).in_current_span());
    let why = match shared.events.send(Event::Joined { worker, hello, token }).await {
        Ok(()) => tokio::select! {
            why = read(shared, worker, address, &relay, &mut stream) => why,
            () = ended.cancelled() => Ok("the coordinator ended the session".into()),
            _ = &mut writer => Ok("the connection broke".into()),
        },
        Err(_) => Ok("the coordinator is going down".into()),
    };
    let why = match why {
        Ok(why) => why,
        Err(refusal) => {
            let why = refusal.to_string();
            let refused = Event::Refused { worker: Some(worker), refusal: refusal.clone() };
            let _ = shared.events.send(refused).await;
            // Its token is dead before it hears why.
            shared.hub.close(worker, refusal);
            why
        }
    };
    tracing::debug!("ended: {why}");
    let _ = shared.events.send(Event::Gone { worker, why }).await;
    drop(relay);
    drop(control);
    drop(connected);
    shared.blobs.abandon(worker).await;
    // The writer ends by itself: it was told to close, or its queues are closed. A peer that reads nothing would hold it.
    if !writer.is_finished() && timeout(FAREWELL, &mut writer).await.is_err() {
        writer.abort();
    }
}

/// A worker's place in the hub.
struct Connected<'a> {
    shared: &'a Shared,
    worker: WorkerId,
    ended: CancellationToken,
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.ended.cancel();
        self.shared.hub.disconnect(self.worker);
    }
}

/// The first message; None when the socket closes instead.
///
/// # Errors
/// Why it is none.
async fn hello(
    stream: &mut SplitStream<Socket>,
    allowance: &Allowance,
    limit: usize,
) -> Result<Option<Hello>, Refusal> {
    while let Some(message) = stream.next().await {
        let message = match message {
            Ok(message) => message,
            Err(_) if allowance.is_used_up() => {
                let detail = "the first message must be Hello, and nothing may come before it".into();
                return Err(Refusal::Unexpected { message: "Data".into(), detail });
            }
            Err(error) => return broken(&error, limit).map(|_| None),
        };
        let Some(bytes) = binary(message)? else { continue };
        return match frame::decode(&bytes)?.message {
            FromWorker::Up(Up::Hello(hello)) if hello.protocol == VERSION => Ok(Some(hello)),
            FromWorker::Up(Up::Hello(hello)) => {
                Err(Refusal::Version { theirs: hello.protocol, ours: VERSION })
            }
            other => Err(Refusal::Unexpected {
                message: other.name().into(),
                detail: "the first message must be Hello".into(),
            }),
        };
    }
    Ok(None)
}

fn binary(message: Message) -> Result<Option<Bytes>, Refusal> {
    match message {
        Message::Binary(bytes) => Ok(Some(bytes)),
        Message::Text(_) => {
            Err(Refusal::Malformed { detail: "text came where a binary frame is expected".into() })
        }
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => Ok(None),
    }
}

/// What one session has used up of a rate.
struct Allotment {
    rate: Rate,
    left: f64,
    since: Instant,
}

impl Allotment {
    fn new(rate: Rate) -> Self {
        Self { rate, left: rate.burst, since: Instant::now() }
    }

    /// Uses so much; gives the time until that much was earned, zero if it was there.
    fn take(&mut self, amount: f64) -> Duration {
        let earned = self.since.elapsed().as_secs_f64() * self.rate.per_second;
        self.since = Instant::now();
        self.left = (self.left + earned).min(self.rate.burst) - amount;
        Duration::from_secs_f64((-self.left / self.rate.per_second).max(0.0))
    }
}

/// Takes in what the worker sends until it leaves or is refused.
async fn read(
    shared: &Shared,
    worker: WorkerId,
    address: Address,
    own: &RelayQueue,
    stream: &mut SplitStream<Socket>,
) -> Result<String, Refusal> {
    let closing = || Ok("the coordinator is going down".to_string());
    let mut heard = Instant::now();
    let (mut probes, mut messages) = (Allotment::new(PROBES), Allotment::new(MESSAGES));
    loop {
        let message = match stream.next().await {
            None | Some(Ok(Message::Close(_))) => return Ok("the connection was closed".into()),
            Some(Err(error)) => return broken(&error, shared.largest_frame),
            Some(Ok(message)) => message,
        };
        if let Message::Pong(payload) = &message
            && let Some(round_trip) = round_trip(payload)
        {
            let _ = shared.events.try_send(Event::PingMeasured { worker, round_trip });
        }
        let Some(bytes) = binary(message)? else {
            pause(messages.take(1.0)).await;
            // A pong shows that somebody is there, as any message does.
            if heard.elapsed() > HEARD {
                heard = Instant::now();
                let _ = shared.events.try_send(Event::Heard { worker });
            }
            continue;
        };
        let frame::Frame { message, payload } = frame::decode(&bytes)?;
        match message {
            FromWorker::Up(Up::Probe(Probe { number, answer, .. })) => {
                pause(messages.take(1.0)).await;
                if probes.take(f64::from(answer)) > Duration::ZERO {
                    let detail = "it asks for more bytes than a measurement of a link takes".into();
                    return Err(Refusal::Unexpected { message: "Probe".into(), detail });
                }
                shared.limits.try_use(address, Used::ProbeBytes, f64::from(answer))?;
                let message =
                    ToWorker::from(protocol::message::Down::from(ProbeAnswer { number, padding: answer }));
                let answer = frame::encode(&message, &vec![0; answer as usize])?;
                // Bounded like relayed frames: who asks for much and reads little is not read.
                own.send(answer.into()).await;
            }
            FromWorker::Up(message) => {
                if let Up::Decoded(decoded) = &message {
                    shared.serving.traversals.answered(worker, decoded, payload)?;
                }
                pause(messages.take(1.0)).await;
                shared.hub.count_up(worker, bytes.len() as u64);
                if matches!(message, Up::Heartbeat(_)) && heard.elapsed() < HEARTBEAT {
                    continue;
                }
                heard = Instant::now();
                let leaving = matches!(message, Up::Leaving(_));
                if shared.events.send(Event::Said { worker, message }).await.is_err() {
                    return closing();
                }
                if leaving {
                    return Ok("it left".into());
                }
            }
            FromWorker::Relayed(message) => {
                if heard.elapsed() > HEARD {
                    heard = Instant::now();
                    let _ = shared.events.try_send(Event::Heard { worker });
                }
                if let Some(outbox) = shared.hub.admit(worker, &message, payload, bytes.len() as u64)? {
                    // Waits while the receiver is slow. A receiver that has gone takes nothing.
                    outbox.relay.send(bytes).await;
                }
            }
        }
    }
}

async fn pause(time: Duration) {
    if time > Duration::ZERO {
        tokio::time::sleep(time).await;
    }
}

/// What an error of the stream means. A frame that is longer than this run's frames is an error of it.
///
/// # Errors
/// For such a frame.
fn broken(error: &SocketError, limit: usize) -> Result<String, Refusal> {
    if let SocketError::Capacity(CapacityError::MessageTooLong { size, .. }) = error {
        return Err(Refusal::Oversized { bytes: *size as u64, limit: limit as u64 });
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

/// Writes what is queued: the coordinator's own messages before relayed ones.
///
/// An Apply must not wait behind tensors of the step after it, and frames of a plan that ended are told
/// apart by their epoch; so the order between the queues does not matter otherwise.
async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut control: mpsc::UnboundedReceiver<Outgoing>,
    mut relay: mpsc::Receiver<Queued>,
    ended: CancellationToken,
) {
    let mut pings = interval(PING);
    let alive = ToWorker::from(protocol::message::Down::from(HeartbeatAnswer {}));
    let Ok(alive) = frame::encode(&alive, &[]).map(Bytes::from) else { return };
    let mut welcomed = false;
    loop {
        let frame = tokio::select! {
            biased;
            outgoing = control.recv() => match outgoing {
                Some(Outgoing::Frame(queued)) => {
                    if sink.send(Message::Binary(queued.bytes.clone())).await.is_err() {
                        return;
                    }
                    welcomed = true;
                    continue;
                }
                Some(Outgoing::Close(refusal)) => {
                    let _ = timeout(FAREWELL, refuse(&mut sink, refusal)).await;
                    ended.cancel();
                    return;
                }
                None => break,
            },
            Some(queued) = relay.recv() => {
                // Its room is given back once it is written.
                if sink.send(Message::Binary(queued.bytes)).await.is_err() {
                    return;
                }
                continue;
            }
            _ = pings.tick() => {
                // Browsers do not show pings to a page, and while a slow receiver keeps this session from reading,
                // heartbeats wait: the worker hears so that the coordinator is there. Its first message is the welcome.
                if welcomed && sink.send(Message::Binary(alive.clone())).await.is_err() {
                    return;
                }
                Message::Ping(Bytes::copy_from_slice(&clock().to_le_bytes()))
            }
        };
        if sink.send(frame).await.is_err() {
            return;
        }
    }
    let _ = timeout(FAREWELL, sink.close()).await;
}

async fn refuse(sink: &mut SplitSink<Socket, Message>, refusal: Refusal) {
    let message = ToWorker::from(protocol::message::Down::from(Refuse(refusal)));
    if let Ok(bytes) = frame::encode(&message, &[]) {
        let _ = sink.send(Message::Binary(bytes.into())).await;
    }
    let _ = sink.close().await;
}
