//! The coordinator's side of the connections.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use protocol::{
    frame::{self, Frame},
    message::*,
    refusal::Refusal,
    spec::{Assignment, Hop, RunSpec, WeightSource},
    tensor::{TensorMeta, encode_tokens},
};
use worker::platform::{self, PlatformError};

use super::clock::Time;

/// Heartbeats and lease that [`Peer::welcome`] says, in milliseconds.
pub const HEARTBEAT_MS: u32 = 5_000;
pub const LEASE_MS: u32 = 15_000;

/// How the next connections fare; afterwards they are accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Dial {
    Accept,
    /// Nobody listens.
    Refuse,
    /// The packets are lost.
    Silence,
}

/// Takes connections. Clones are the same one.
#[derive(Clone)]
pub struct Coordinator {
    time: Rc<Time>,
    dials: Rc<RefCell<VecDeque<Dial>>>,
    waiting: Rc<RefCell<VecDeque<Peer>>>,
    waker: Rc<RefCell<Option<Waker>>>,
    /// Connections tried so far.
    pub dialled: Rc<Cell<u32>>,
}

#[derive(Default)]
struct Wires {
    up: RefCell<VecDeque<Vec<u8>>>,
    down: RefCell<VecDeque<Vec<u8>>>,
    up_waker: RefCell<Option<Waker>>,
    down_waker: RefCell<Option<Waker>>,
    closed: Cell<bool>,
    /// Heartbeats are answered.
    answers: Cell<bool>,
    /// Nothing is taken from the worker.
    deaf: Cell<bool>,
    heartbeats: Cell<u32>,
}

/// The coordinator's end of one connection.
#[derive(Clone)]
pub struct Peer {
    wires: Rc<Wires>,
    time: Rc<Time>,
}

pub struct Network(pub Coordinator);

pub struct Transport(Rc<Wires>);

fn closed() -> PlatformError {
    PlatformError("the connection was lost".into())
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = waker.borrow_mut().take() {
        waker.wake();
    }
}

impl Coordinator {
    pub fn new(time: Rc<Time>) -> Self {
        Self {
            time,
            dials: Rc::default(),
            waiting: Rc::default(),
            waker: Rc::default(),
            dialled: Rc::default(),
        }
    }

    /// How the next connections fare.
    pub fn dials(&self, dials: impl IntoIterator<Item = Dial>) {
        self.dials.borrow_mut().extend(dials);
    }

    /// Waits for a connection.
    pub async fn accept(&self) -> Peer {
        poll_fn(|context| match self.waiting.borrow_mut().pop_front() {
            Some(peer) => Poll::Ready(peer),
            None => {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Waits for a connection whose worker is welcomed to `run` and has measured itself.
    pub async fn join(&self, run: &RunSpec) -> Peer {
        let peer = self.accept().await;
        peer.welcome(run).await;
        peer.profile().await;
        peer
    }
}

impl platform::Network for Network {
    type Transport = Transport;

    async fn connect(&self) -> Result<Transport, PlatformError> {
        let Self(coordinator) = self;
        coordinator.dialled.set(coordinator.dialled.get() + 1);
        let dial = coordinator.dials.borrow_mut().pop_front();
        match dial.unwrap_or(Dial::Accept) {
            Dial::Accept => {}
            Dial::Refuse => return Err(PlatformError("nobody listens".into())),
            Dial::Silence => std::future::pending().await,
        }
        let wires = Rc::new(Wires::default());
        wires.answers.set(true);
        let peer = Peer { wires: wires.clone(), time: coordinator.time.clone() };
        coordinator.waiting.borrow_mut().push_back(peer);
        wake(&coordinator.waker);
        Ok(Transport(wires))
    }
}

impl platform::Transport for Transport {
    async fn send(&self, bytes: Vec<u8>) -> Result<(), PlatformError> {
        let Self(wires) = self;
        if wires.deaf.get() {
            std::future::pending::<()>().await;
        }
        if wires.closed.get() {
            return Err(closed());
        }
        let Frame { message, .. } = frame::decode::<FromWorker>(&bytes).expect("a worker's frame");
        if let FromWorker::Up(Up::Heartbeat(_)) = message {
            wires.heartbeats.set(wires.heartbeats.get() + 1);
            if wires.answers.get() {
                let answer = frame::encode(&ToWorker::from(Down::from(HeartbeatAnswer {})), &[]).unwrap();
                wires.down.borrow_mut().push_back(answer);
                wake(&wires.down_waker);
            }
            return Ok(());
        }
        wires.up.borrow_mut().push_back(bytes);
        wake(&wires.up_waker);
        Ok(())
    }

    async fn receive(&self) -> Result<Vec<u8>, PlatformError> {
        let Self(wires) = self;
        poll_fn(|context| match wires.down.borrow_mut().pop_front() {
            Some(bytes) => Poll::Ready(Ok(bytes)),
            None if wires.closed.get() => Poll::Ready(Err(closed())),
            None => {
                *wires.down_waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    async fn finish(&self) {
        if self.0.deaf.get() {
            std::future::pending::<()>().await;
        }
        self.0.closed.set(true);
        wake(&self.0.up_waker);
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.0.closed.set(true);
        wake(&self.0.up_waker);
    }
}

impl Peer {
    /// The next frame but heartbeats; None once the connection is closed.
    pub async fn next(&self) -> Option<(FromWorker, Vec<u8>)> {
        let wires = &self.wires;
        let bytes = poll_fn(|context| match wires.up.borrow_mut().pop_front() {
            Some(bytes) => Poll::Ready(Some(bytes)),
            None if wires.closed.get() => Poll::Ready(None),
            None => {
                *wires.up_waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await?;
        let Frame { message, payload } = frame::decode(&bytes).expect("a worker's frame");
        Some((message, payload.to_vec()))
    }

    /// The next word to the coordinator itself.
    pub async fn up(&self) -> Up {
        match self.next().await {
            Some((FromWorker::Up(up), _)) => up,
            other => panic!("a message for the coordinator was expected, and {other:?} came"),
        }
    }

    /// The next word to the coordinator itself, probes answered.
    pub async fn after_probes(&self) -> Up {
        loop {
            match self.up().await {
                Up::Probe(Probe { number, answer, .. }) => {
                    self.time.sleep(0.01).await;
                    self.send_with(ProbeAnswer { number, padding: answer }, &vec![0; answer as usize]);
                }
                other => return other,
            }
        }
    }

    /// Says something.
    pub fn send(&self, message: impl Into<Down>) {
        self.send_with(message, &[]);
    }

    pub fn send_with(&self, message: impl Into<Down>, payload: &[u8]) {
        self.bytes(frame::encode(&ToWorker::from(message.into()), payload).unwrap());
    }

    /// Sends anything.
    pub fn bytes(&self, bytes: Vec<u8>) {
        self.wires.down.borrow_mut().push_back(bytes);
        wake(&self.wires.down_waker);
    }

    pub fn refuse(&self, refusal: Refusal) {
        self.send(Refuse(refusal));
        self.close();
    }

    pub fn close(&self) {
        self.wires.closed.set(true);
        wake(&self.wires.down_waker);
        wake(&self.wires.up_waker);
    }

    /// From now on heartbeats are not answered.
    pub fn fall_silent(&self) {
        self.wires.answers.set(false);
    }

    /// From now on nothing is taken from the worker, as when the network is gone.
    pub fn go_deaf(&self) {
        self.fall_silent();
        self.wires.deaf.set(true);
    }

    /// Whether the connection is open and nothing waits to be read.
    pub fn next_is_pending(&self) -> bool {
        !self.wires.closed.get() && self.wires.up.borrow().is_empty()
    }

    pub fn heartbeats(&self) -> u32 {
        self.wires.heartbeats.get()
    }

    pub async fn welcome(&self, run: &RunSpec) {
        assert!(matches!(self.up().await, Up::Hello(_)));
        self.send(Welcome {
            worker: 7,
            token: "token".into(),
            run: run.clone(),
            heartbeat_ms: HEARTBEAT_MS,
            lease_ms: LEASE_MS,
        });
    }

    pub async fn profile(&self) -> Profile {
        self.send(Benchmark {});
        match self.after_probes().await {
            Up::Profile(profile) => profile,
            other => panic!("a profile was expected, and {other:?} came"),
        }
    }

    /// Gives the whole model of pipeline mode.
    pub fn assign_all(&self, run: &RunSpec, epoch: u64, first_step: u64, weights: WeightSource) {
        self.send(Assign(whole(run, epoch, first_step, weights)));
    }

    /// Sends a micro-batch's tokens and targets to a worker that holds the whole model.
    pub fn micro_batch(&self, run: &RunSpec, epoch: u64, step: u64, pass: Pass) {
        let to = Address { epoch, step, pass, hop: 0 };
        let (tensor, payload) = ids(&[run.sequences, run.context], step as u32, run);
        self.send_with(Tokens(TensorFrame { to, tensor }), &payload);
        let (tensor, payload) = ids(&[run.sequences, run.context], step as u32 + 1, run);
        self.send_with(Targets(TensorFrame { to, tensor }), &payload);
    }
}

/// Token ids of a shape, all in the vocabulary.
pub fn ids(shape: &[u32], shift: u32, run: &RunSpec) -> (TensorMeta, Vec<u8>) {
    let count: u32 = shape.iter().product();
    let ids: Vec<u32> = (0..count).map(|i| (3 * i + shift) % run.model.vocabulary).collect();
    encode_tokens(&ids, shape).unwrap()
}

/// The whole model in one hop.
pub fn whole(run: &RunSpec, epoch: u64, first_step: u64, weights: WeightSource) -> Assignment {
    let part = run.model.whole();
    Assignment {
        epoch,
        hops: vec![Hop { index: 0, part }],
        hop_count: 1,
        first_step,
        micro_batches: run.micro_batches,
        window: 1,
        weights,
    }
}
