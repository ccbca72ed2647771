//! A world in one thread and in virtual time: the run machine and the relay as the coordinator has them, and real
//! sessions of the engine with real weights, over a network that delays, cuts, holds up, doubles, swaps and garbles
//! what it carries. Everything follows from a seed.

pub mod host;

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    rc::Rc,
    task::Waker,
    time::Duration,
};

use coordinator::run::{
    event::{Action, Event, Half, WorkerId},
    machine::{Machine, Settings},
    relay::{Relay, Verdict},
    snapshot::Manifest,
};
use engine::session::{
    self, Leave,
    devices::{Candidate, Devices},
    host::Host,
};
use futures::{
    executor::{LocalPool, LocalSpawner},
    future::{AbortHandle, Abortable},
    task::LocalSpawnExt,
};
use protocol::{
    VERSION,
    blob::BlobHash,
    frame,
    message::{Address, Hello, Message, Pass, Probe, Sender, TensorFrame, Vitals, WorkerKind},
    refusal::Refusal,
    spec::Backend,
    tensor::encode_tokens,
    view::Phase,
};

/// What the network or the world does to a run, once `after` messages have been carried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disturbance {
    pub after: u64,
    pub what: What,
    /// Chooses the worker.
    pub whom: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// Another worker comes.
    Join,
    /// A worker is killed; its connection closes.
    Kill,
    /// A connection is cut; its worker connects again.
    Cut,
    /// A connection carries nothing for this many seconds.
    HoldUp(u32),
    /// A worker's next frame comes twice.
    Double,
    /// A worker's next two frames change places.
    Swap,
    /// A bit of a worker's next tensor flips.
    Garble,
    /// A worker's next frame is lost, and nobody notices.
    Lose,
    /// The coordinator is killed, and started again after this many seconds.
    KillCoordinator(u32),
}

enum Happening {
    ToCoordinator {
        connection: u64,
        bytes: Vec<u8>,
    },
    ToWorker {
        connection: u64,
        bytes: Vec<u8>,
    },
    /// The coordinator sees that a connection is closed.
    Lost {
        connection: u64,
    },
    Wake(Waker),
    Stored {
        generation: u64,
        manifest: Manifest,
    },
    Tick,
    Start,
}

#[derive(Default)]
struct Connection {
    worker: Option<WorkerId>,
    inbox: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
    closed: bool,
    /// No message overtakes another: when the last one arrives.
    last_up: f64,
    last_down: f64,
    held_until: f64,
    double: bool,
    garble: bool,
    lose: bool,
    swap: bool,
    /// Waits to be overtaken.
    swapped: Option<Vec<u8>>,
}

/// Everything but the workers' own state.
pub struct World {
    pub now: f64,
    seed: u64,
    drawn: u64,
    happenings: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: HashMap<u64, Happening>,
    number: u64,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    next_worker: u64,
    settings: Settings,
    pub machine: Machine,
    relay: Relay,
    generation: u64,
    down_until: f64,
    pub committed: Option<Manifest>,
    pub blobs: HashMap<BlobHash, Vec<u8>>,
    partial: HashMap<BlobHash, Vec<u8>>,
    /// Messages carried so far.
    pub carried: u64,
}

pub type Shared = Rc<RefCell<World>>;

/// The virtual computer: the world and its workers.
pub struct Computer {
    pool: LocalPool,
    spawner: LocalSpawner,
    pub world: Shared,
    workers: Vec<(AbortHandle, Rc<RefCell<Option<u64>>>)>,
    disturbances: VecDeque<Disturbance>,
}

/// splitmix64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl World {
    /// A number below `bound`.
    pub fn draw(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        mix(self.seed ^ mix(self.drawn)) % bound.max(1)
    }

    fn at(&mut self, time: f64, what: Happening) {
        self.number += 1;
        self.waiting.insert(self.number, what);
        // Times are not negative: their bits are in order.
        self.happenings.push(Reverse((time.to_bits(), self.number)));
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.now)
    }

    pub fn is_down(&self) -> bool {
        self.now < self.down_until
    }

    /// Seconds that a message takes.
    fn delay(&mut self) -> f64 {
        1e-3 * (1 + self.draw(60)) as f64
    }

    fn connect(&mut self) -> Option<u64> {
        if self.is_down() {
            return None;
        }
        self.next_connection += 1;
        self.connections.insert(self.next_connection, Connection::default());
        Some(self.next_connection)
    }

    /// A worker hands a frame over.
    fn send_up(&mut self, id: u64, mut bytes: Vec<u8>) -> bool {
        let delay = self.delay();
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.closed) else { return false };
        let tensor = frame::decode(&bytes).is_ok_and(|f| f.message.tensor().is_some());
        if tensor && std::mem::take(&mut connection.garble) {
            let last = bytes.len() - 1;
            bytes[last] ^= 4;
        }
        if std::mem::take(&mut connection.lose) {
            return true;
        }
        let mut out = Vec::new();
        if let Some(before) = connection.swapped.take() {
            out.push(bytes);
            out.push(before);
        } else if std::mem::take(&mut connection.swap) {
            connection.swapped = Some(bytes);
        } else {
            if std::mem::take(&mut connection.double) {
                out.push(bytes.clone());
            }
            out.push(bytes);
        }
        let arrives = connection.last_up.max(now + delay).max(connection.held_until);
        connection.last_up = arrives;
        for bytes in out {
            self.at(arrives, Happening::ToCoordinator { connection: id, bytes });
        }
        true
    }

    fn send_down(&mut self, id: u64, bytes: Vec<u8>) {
        let delay = self.delay();
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.closed) else { return };
        let arrives = connection.last_down.max(now + delay).max(connection.held_until);
        connection.last_down = arrives;
        self.at(arrives, Happening::ToWorker { connection: id, bytes });
    }

    fn connection_of(&self, worker: WorkerId) -> Option<u64> {
        self.connections.iter().find(|(_, c)| c.worker == Some(worker)).map(|(id, _)| *id)
    }

    /// Close a connection now; the coordinator notices after a while.
    fn cut(&mut self, id: u64) {
        let delay = self.delay();
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.closed = true;
            if let Some(waker) = connection.waker.take() {
                waker.wake();
            }
        }
        self.at(self.now + delay, Happening::Lost { connection: id });
    }

    fn tell(&mut self, event: Event) {
        let time = self.time();
        for action in self.machine.handle(time, event) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send { worker, message } => self.say(worker, &message, &[]),
            Action::SendBatch { worker, to, half } => {
                let run = &self.settings.run;
                let tokens = tokens(to, half, run.sequences * run.context, run.model.vocabulary);
                let (tensor, payload) = encode_tokens(&tokens, &[run.sequences, run.context]).unwrap();
                let frame = TensorFrame { to, tensor };
                let message = match half {
                    Half::Inputs => Message::Tokens(frame),
                    Half::Targets => Message::Targets(frame),
                };
                self.say(worker, &message, &payload);
            }
            Action::Route(relay) => self.relay = relay,
            Action::OpenStep { step } => self.relay.open_step(step),
            Action::Close { worker, refusal } => {
                self.say(worker, &Message::Refuse(refusal), &[]);
                self.close(worker);
            }
            Action::Commit(mut manifest) => {
                let parts: Vec<&Vec<u8>> = manifest.parts.iter().map(|p| &self.blobs[&p.blob.hash]).collect();
                manifest.state = engine::checkpoint::state_hash(&parts).unwrap().to_string();
                let delay = self.delay();
                let generation = self.generation;
                self.at(self.now + 2.0 * delay, Happening::Stored { generation, manifest });
            }
            Action::Prune { .. } | Action::Record(_) | Action::Point(_) => {}
            Action::SendWindows { .. }
            | Action::CheckDelta { .. }
            | Action::Average { .. }
            | Action::Evaluate { .. } => panic!("an action of block mode"),
        }
    }

    fn say(&mut self, worker: WorkerId, message: &Message, payload: &[u8]) {
        if let Some(connection) = self.connection_of(worker) {
            self.send_down(connection, frame::encode(message, payload).unwrap());
        }
    }

    /// Close a worker's connection after what was said to it has arrived.
    fn close(&mut self, worker: WorkerId) {
        if let Some(id) = self.connection_of(worker) {
            let connection = self.connections.get_mut(&id).unwrap();
            connection.worker = None;
            let last = connection.last_down;
            self.at(last + 1e-6, Happening::Lost { connection: id });
        }
    }

    /// A frame has arrived at the coordinator: what its sessions do with it.
    fn heard(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(connection) = self.connections.get(&id).filter(|c| !c.closed) else { return };
        let from = connection.worker;
        let message = match frame::decode(&bytes) {
            Ok(frame) => frame.message,
            Err(error) => return self.refuse(id, from, error.into()),
        };
        match (message, from) {
            (Message::Hello(hello), None) => {
                self.next_worker += 1;
                let worker = WorkerId(self.next_worker);
                self.connections.get_mut(&id).unwrap().worker = Some(worker);
                self.tell(Event::Joined { worker, hello, token: String::new() });
            }
            (_, None) => {} // of a worker that was turned away
            (Message::Probe(Probe { number, answer, .. }), Some(_)) => {
                let message = Message::ProbeAnswer { number, padding: answer };
                self.send_down(id, frame::encode(&message, &vec![0; answer as usize]).unwrap());
            }
            (message, Some(worker)) if message.sender() == Sender::Coordinator => {
                let detail = "only the coordinator says this".into();
                self.refuse(id, Some(worker), Refusal::Unexpected { message: message.name().into(), detail });
            }
            (message, Some(worker)) if message.tensor().is_some() => match self.relay.admit(worker, &message)
            {
                Ok(Verdict::Stale) => {}
                Ok(Verdict::Forward(to)) => {
                    if let Some(connection) = self.connection_of(to) {
                        self.send_down(connection, bytes);
                    }
                }
                Err(refusal) => self.refuse(id, Some(worker), refusal),
            },
            (message, Some(worker)) => self.tell(Event::Said { worker, message }),
        }
    }

    fn refuse(&mut self, id: u64, worker: Option<WorkerId>, refusal: Refusal) {
        self.tell(Event::Refused { worker, refusal: refusal.clone() });
        self.send_down(id, frame::encode(&Message::Refuse(refusal.clone()), &[]).unwrap());
        if let Some(worker) = worker {
            self.close(worker);
            self.tell(Event::Gone { worker, why: refusal.to_string() });
        }
    }
}

/// Token ids that a step's pass is made of.
fn tokens(to: Address, half: Half, count: u32, vocabulary: u32) -> Vec<u32> {
    let pass = match to.pass {
        Pass::Train { micro_batch } => u64::from(micro_batch),
        Pass::Validate { batch } => 1000 + u64::from(batch),
    };
    let step = if pass >= 1000 { 0 } else { to.step };
    let shift = u64::from(half == Half::Targets);
    (0..u64::from(count))
        .map(|i| (mix(mix(step) ^ mix(pass << 20) ^ (i + shift)) % u64::from(vocabulary)) as u32)
        .collect()
}

impl Computer {
    pub fn new(seed: u64, settings: Settings, mut disturbances: Vec<Disturbance>) -> Self {
        disturbances.sort_by_key(|d| d.after);
        let mut world = World {
            now: 0.0,
            seed,
            drawn: 0,
            happenings: BinaryHeap::new(),
            waiting: HashMap::new(),
            number: 0,
            connections: BTreeMap::new(),
            next_connection: 0,
            next_worker: 0,
            machine: Machine::new(settings.clone(), None),
            settings,
            relay: Relay::closed(0),
            generation: 0,
            down_until: 0.0,
            committed: None,
            blobs: HashMap::new(),
            partial: HashMap::new(),
            carried: 0,
        };
        world.at(1.0, Happening::Tick);
        let pool = LocalPool::new();
        let spawner = pool.spawner();
        let world = Rc::new(RefCell::new(world));
        Self { pool, spawner, world, workers: vec![], disturbances: disturbances.into() }
    }

    /// A worker that comes again, as somebody new, whenever it was turned away.
    pub fn join(&mut self) {
        let (abort, registration) = AbortHandle::new_pair();
        let connection = Rc::new(RefCell::new(None));
        self.workers.push((abort, connection.clone()));
        let world = self.world.clone();
        let worker = async move {
            loop {
                let host = Host {
                    network: host::Network::new(world.clone(), connection.clone()),
                    clock: host::Clock::new(world.clone()),
                    blobs: host::Blobs::new(world.clone()),
                    vitals: Box::new(Vitals::default),
                    tell: Box::new(|_| {}),
                };
                let hello = Hello {
                    protocol: VERSION,
                    build: "test".into(),
                    kind: WorkerKind::Native,
                    name: "virtual".into(),
                };
                let cpu =
                    Candidate { backend: Backend::Cpu, description: "CPU".into(), largest_buffer: None };
                let (_ask, leave) = Leave::new();
                match session::run(&host, hello, Devices::new(vec![cpu], 1, 0), leave).await {
                    session::End::Refused(_) => {
                        engine::session::host::Clock::sleep(&host.clock, 1.0).await;
                    }
                    _ => break,
                }
            }
        };
        self.spawner
            .spawn_local(async move {
                let _ = Abortable::new(worker, registration).await;
            })
            .unwrap();
    }

    /// Until the run is over, or `limit` seconds have passed. Gives the phase it ended in.
    pub fn run(&mut self, limit: f64) -> Phase {
        loop {
            self.pool.run_until_stalled();
            self.disturb();
            self.pool.run_until_stalled();
            let mut world = self.world.borrow_mut();
            let phase = world.machine.phase();
            if matches!(phase, Phase::Finished | Phase::Stopped) && !world.is_down() {
                return phase;
            }
            let Some(Reverse((time, number))) = world.happenings.pop() else { return phase };
            world.now = f64::from_bits(time).max(world.now);
            if world.now > limit {
                return phase;
            }
            let what = world.waiting.remove(&number).unwrap();
            match what {
                Happening::Wake(waker) => waker.wake(),
                Happening::ToWorker { connection, bytes } => {
                    world.carried += 1;
                    if let Some(connection) = world.connections.get_mut(&connection).filter(|c| !c.closed) {
                        connection.inbox.push_back(bytes);
                        if let Some(waker) = connection.waker.take() {
                            waker.wake();
                        }
                    }
                }
                Happening::ToCoordinator { connection, bytes } => {
                    world.carried += 1;
                    world.heard(connection, bytes);
                }
                Happening::Lost { connection } => {
                    if let Some(mut lost) = world.connections.remove(&connection) {
                        if let Some(waker) = lost.waker.take() {
                            waker.wake();
                        }
                        if let Some(worker) = lost.worker {
                            world.tell(Event::Gone { worker, why: "the connection was closed".into() });
                        }
                    }
                }
                Happening::Stored { generation, manifest } => {
                    // A manifest that was on its way to the disk when the coordinator was killed may be there or not.
                    let survived = generation == world.generation || world.draw(2) == 0;
                    let newer = world.committed.as_ref().is_none_or(|m| m.steps_done <= manifest.steps_done);
                    if generation == world.generation {
                        let (steps_done, state) = (manifest.steps_done, manifest.state.clone());
                        // On disk each has a file of its own; the one of most steps counts.
                        if newer {
                            world.committed = Some(manifest);
                        }
                        world.tell(Event::Committed { steps_done, state });
                    } else if survived && newer && world.is_down() {
                        world.committed = Some(manifest);
                    }
                }
                Happening::Tick => {
                    if !world.is_down() {
                        world.tell(Event::Tick);
                    }
                    let next = world.now + 1.0;
                    world.at(next, Happening::Tick);
                }
                Happening::Start => {
                    let settings = world.settings.clone();
                    let manifest = world.committed.clone();
                    world.down_until = 0.0;
                    world.relay = Relay::closed(manifest.as_ref().map_or(0, |m| m.epoch));
                    world.machine = Machine::new(settings, manifest);
                }
            }
        }
    }

    /// From now on nothing is disturbed.
    pub fn calm(&mut self) {
        self.disturbances.clear();
    }

    fn disturb(&mut self) {
        let carried = self.world.borrow().carried;
        while self.disturbances.front().is_some_and(|d| d.after <= carried) {
            let Some(Disturbance { what, whom, .. }) = self.disturbances.pop_front() else { return };
            if what == What::Join {
                self.join();
                continue;
            }
            if let What::KillCoordinator(seconds) = what {
                let mut world = self.world.borrow_mut();
                world.generation += 1;
                world.down_until = world.now + f64::from(seconds);
                let all: Vec<u64> = world.connections.keys().copied().collect();
                for id in all {
                    let connection = world.connections.get_mut(&id).unwrap();
                    connection.worker = None;
                    world.cut(id);
                }
                let start = world.down_until;
                world.at(start, Happening::Start);
                continue;
            }
            if self.workers.is_empty() {
                continue;
            }
            let at = (whom % self.workers.len() as u64) as usize;
            let connection = *self.workers[at].1.borrow();
            let mut world = self.world.borrow_mut();
            if what == What::Kill {
                self.workers.remove(at).0.abort();
            }
            let Some(id) = connection else { continue };
            let now = world.now;
            match what {
                What::Kill | What::Cut => world.cut(id),
                other => {
                    let Some(connection) = world.connections.get_mut(&id) else { continue };
                    match other {
                        What::HoldUp(seconds) => connection.held_until = now + f64::from(seconds),
                        What::Double => connection.double = true,
                        What::Swap => connection.swap = true,
                        What::Garble => connection.garble = true,
                        What::Lose => connection.lose = true,
                        _ => {}
                    }
                }
            }
        }
    }
}
