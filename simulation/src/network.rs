//! The virtual network: frames and files over links with a latency and bandwidths, with their real bytes counted.
//!
//! Frames wait for each other on each way of a worker's link, and so do files; the two do not share the bandwidth, as
//! little else but heartbeats goes beside a file. A seed gives the same network.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, VecDeque},
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use control::record::Traffic;
use protocol::{
    blob::{BlobHash, BlobRef},
    frame,
    message::FromWorker,
    worker_id::WorkerId,
};
use worker::platform::{PlatformError, Put};

use crate::{
    chance::Draws,
    clock::{Queue, Ticket, seconds},
    stand_in::StandIn,
};

/// What the link of a worker can do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Seconds of one way, of an empty frame.
    pub latency: f64,
    /// Bytes per second to the coordinator.
    pub up: f64,
    /// Bytes per second from the coordinator.
    pub down: f64,
}

/// What is wrong with all links.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Weather {
    /// A frame takes up to so many seconds longer.
    pub jitter: f64,
    /// One in so many requests for a file fails; None: none does.
    pub failing: Option<u64>,
}

/// What the coordinator sees of the network.
#[derive(Debug)]
pub(crate) enum Arrival {
    Frame {
        connection: u64,
        bytes: Vec<u8>,
    },
    /// A connection is closed.
    Lost {
        worker: Option<WorkerId>,
    },
    /// The time of [`Network::alarm`].
    Alarm(u64),
}

enum Due {
    ToCoordinator { connection: u64, bytes: Vec<u8> },
    ToWorker { connection: u64, bytes: Vec<u8> },
    Lost { connection: u64 },
    Alarm(u64),
    Wake(Waker),
}

/// When a way of a link is free again: for frames and for files, up and down.
#[derive(Debug, Clone, Copy, Default)]
struct Lanes {
    frames_up: Duration,
    frames_down: Duration,
    files_up: Duration,
    files_down: Duration,
}

/// One worker's end of the network.
#[derive(Debug)]
pub(crate) struct Endpoint {
    link: Link,
    lanes: Lanes,
    /// Everything on the link takes so many times as long.
    pub slower: f64,
    /// Frames and files since the count was last taken.
    pub traffic: Traffic,
    /// The connection that was opened last.
    pub connection: Option<u64>,
    /// Until then it hears nothing: it has stopped reading.
    pub deaf_until: Duration,
    /// A bit of its next tensor or file flips.
    pub garble: bool,
}

/// One connection of a worker to the coordinator.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub endpoint: usize,
    /// Once it was let in.
    pub worker: Option<WorkerId>,
    inbox: VecDeque<Vec<u8>>,
    reader: Option<Waker>,
    closed: bool,
    /// The coordinator knows that it is closed.
    noticed: bool,
    /// The worker has let go of it.
    dropped: bool,
    /// No frame overtakes another: when the last one arrives.
    last_up: Duration,
    last_down: Duration,
    /// It carries nothing before.
    pub held_until: Duration,
    /// Its next frame comes twice.
    pub double: bool,
    /// Its next frame is lost.
    pub lose: bool,
    /// Its next two frames change places.
    pub swap: bool,
    /// Waits to be overtaken.
    overtaken: Option<Vec<u8>>,
}

/// The links, what is on its way over them, and the coordinator's store.
pub struct Network {
    queue: Queue<Due>,
    pub(crate) draws: Draws,
    weather: Weather,
    pub(crate) endpoints: Vec<Endpoint>,
    connections: BTreeMap<u64, Connection>,
    of_worker: BTreeMap<WorkerId, u64>,
    next_connection: u64,
    alarms: u64,
    /// Whether the coordinator answers.
    pub(crate) open: bool,
    files: HashMap<BlobHash, Rc<Vec<u8>>>,
    partial: HashMap<BlobHash, Vec<u8>>,
    /// Frames that have arrived so far.
    pub(crate) carried: u64,
    /// Counts other sizes than those of the frames and files that are sent.
    pub(crate) stand_in: Option<StandIn>,
}

/// The network, shared by the coordinator and the workers of one thread.
pub(crate) type Shared = Rc<RefCell<Network>>;

fn closed() -> PlatformError {
    PlatformError("the connection was lost".into())
}

/// When so many bytes have left, on a way that was taken up to `lane`.
fn leave(lane: &mut Duration, now: Duration, bytes: u64, rate: f64, slower: f64) -> Duration {
    *lane = now.max(*lane) + seconds(slower * bytes as f64 / rate);
    *lane
}

impl Network {
    /// Without workers.
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self {
            queue: Queue::default(),
            draws: Draws::new(seed),
            weather,
            endpoints: vec![],
            connections: BTreeMap::new(),
            of_worker: BTreeMap::new(),
            next_connection: 0,
            alarms: 0,
            open: true,
            files: HashMap::new(),
            partial: HashMap::new(),
            carried: 0,
            stand_in: None,
        }
    }

    /// The virtual time since the beginning.
    pub fn now(&self) -> Duration {
        self.queue.now()
    }

    /// Frames that have arrived so far, at either side.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// A file of the store.
    pub fn file(&self, hash: BlobHash) -> Option<&Rc<Vec<u8>>> {
        self.files.get(&hash)
    }

    /// Puts a file into the store; the coordinator's own take no time.
    pub fn keep(&mut self, bytes: Vec<u8>) -> BlobRef {
        let blob = BlobRef::of(&bytes);
        self.files.insert(blob.hash, Rc::new(bytes));
        blob
    }

    /// Takes a file out of the store.
    pub fn forget(&mut self, hash: BlobHash) {
        self.files.remove(&hash);
    }

    pub(crate) fn add_endpoint(&mut self, link: Link) -> usize {
        self.endpoints.push(Endpoint {
            link,
            lanes: Lanes::default(),
            slower: 1.0,
            traffic: Traffic::default(),
            connection: None,
            deaf_until: Duration::ZERO,
            garble: false,
        });
        self.endpoints.len() - 1
    }

    // Time.

    pub(crate) fn next(&self) -> Option<Duration> {
        self.queue.next()
    }

    /// Lets time pass up to `time`, where nothing is due before.
    pub(crate) fn advance(&mut self, time: Duration) {
        self.queue.advance(time);
    }

    /// Has [`Arrival::Alarm`] with this number come at a time.
    pub(crate) fn alarm(&mut self, time: Duration) -> u64 {
        self.alarms += 1;
        self.queue.at(time, Due::Alarm(self.alarms));
        self.alarms
    }

    /// Lets time pass to the next thing that happens; gives it if it concerns the coordinator.
    pub(crate) fn step(&mut self) -> Option<Arrival> {
        match self.queue.pop()? {
            Due::Wake(waker) => {
                waker.wake();
                None
            }
            Due::Alarm(number) => Some(Arrival::Alarm(number)),
            Due::ToWorker { connection, bytes } => {
                self.deliver(connection, bytes);
                None
            }
            Due::ToCoordinator { connection, bytes } => {
                self.carried += 1;
                let open = self.connections.get(&connection).is_some_and(|connection| !connection.closed);
                open.then_some(Arrival::Frame { connection, bytes })
            }
            Due::Lost { connection: id } => {
                let connection = self.connections.get_mut(&id)?;
                connection.close();
                let first = !std::mem::replace(&mut connection.noticed, true);
                let worker = connection.worker.take();
                if connection.dropped {
                    self.connections.remove(&id);
                }
                if let Some(worker) = worker {
                    self.of_worker.remove(&worker);
                }
                first.then_some(Arrival::Lost { worker })
            }
        }
    }

    fn deliver(&mut self, id: u64, bytes: Vec<u8>) {
        self.carried += 1;
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.closed) else {
            return;
        };
        if self.endpoints[connection.endpoint].deaf_until <= now {
            connection.inbox.push_back(bytes);
            connection.wake();
        }
    }

    /// Pending until a time has come; once at least. `ticket` is what the caller keeps between polls.
    pub(crate) fn poll_sleep(
        &mut self,
        until: Duration,
        ticket: &mut Option<Ticket>,
        waker: &Waker,
    ) -> Poll<()> {
        let Some(known) = *ticket else {
            *ticket = Some(self.queue.at(until, Due::Wake(waker.clone())));
            return Poll::Pending;
        };
        match self.queue.get_mut(known) {
            Some(due) => {
                *due = Due::Wake(waker.clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.queue.cancel(ticket);
    }

    // Connections.

    pub(crate) fn connect(&mut self, endpoint: usize) -> Option<u64> {
        if !self.open {
            return None;
        }
        self.next_connection += 1;
        let id = self.next_connection;
        self.connections.insert(id, Connection { endpoint, ..Connection::default() });
        self.endpoints[endpoint].connection = Some(id);
        Some(id)
    }

    pub(crate) fn connection(&mut self, id: u64) -> Option<&mut Connection> {
        self.connections.get_mut(&id).filter(|connection| !connection.closed)
    }

    /// Notes that a connection is that of a worker.
    pub(crate) fn admit(&mut self, id: u64, worker: WorkerId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.worker = Some(worker);
            self.of_worker.insert(worker, id);
        }
    }

    pub(crate) fn connection_of(&self, worker: WorkerId) -> Option<u64> {
        self.of_worker.get(&worker).copied()
    }

    /// The end of the network at which a worker is.
    pub(crate) fn endpoint_of(&self, worker: WorkerId) -> Option<usize> {
        let connection = self.connections.get(self.of_worker.get(&worker)?)?;
        Some(connection.endpoint)
    }

    fn delay(&mut self, endpoint: usize) -> Duration {
        let jitter = if self.weather.jitter > 0.0 { self.weather.jitter * self.draws.even() } else { 0.0 };
        let Endpoint { link, slower, .. } = &self.endpoints[endpoint];
        seconds(link.latency * slower + jitter)
    }

    /// A worker hands a frame over.
    ///
    /// # Errors
    /// When the connection is closed.
    pub(crate) fn send_up(&mut self, id: u64, mut bytes: Vec<u8>) -> Result<(), PlatformError> {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.closed) else {
            return Err(closed());
        };
        let endpoint = connection.endpoint;
        if self.endpoints[endpoint].garble && is_tensor(&bytes) {
            self.endpoints[endpoint].garble = false;
            flip(&mut bytes);
        }
        let mut out = Vec::new();
        if std::mem::take(&mut connection.lose) {
            return Ok(());
        } else if let Some(before) = connection.overtaken.take() {
            out.extend([bytes, before]);
        } else if std::mem::take(&mut connection.swap) {
            connection.overtaken = Some(bytes);
        } else {
            if std::mem::take(&mut connection.double) {
                out.push(bytes.clone());
            }
            out.push(bytes);
        }
        for bytes in out {
            let length = self.stand_in.as_ref().map_or(bytes.len() as u64, |stand_in| stand_in.up(&bytes));
            let delay = self.delay(endpoint);
            let end = &mut self.endpoints[endpoint];
            end.traffic.up += length;
            let left = leave(&mut end.lanes.frames_up, now, length, end.link.up, end.slower);
            let Some(connection) = self.connections.get_mut(&id) else { break };
            let arrives = (left + delay).max(connection.last_up).max(connection.held_until);
            connection.last_up = arrives;
            self.queue.at(arrives, Due::ToCoordinator { connection: id, bytes });
        }
        Ok(())
    }

    /// When everything that a worker has sent has arrived.
    pub(crate) fn sent(&self, id: u64) -> Duration {
        self.connections.get(&id).map_or(self.now(), |connection| connection.last_up)
    }

    /// The coordinator sends a frame.
    pub(crate) fn send_down(&mut self, id: u64, bytes: Vec<u8>) {
        let now = self.now();
        let Some(endpoint) = self.connection(id).map(|connection| connection.endpoint) else { return };
        let length = self.stand_in.as_ref().map_or(bytes.len() as u64, |stand_in| stand_in.down(&bytes));
        let delay = self.delay(endpoint);
        let end = &mut self.endpoints[endpoint];
        end.traffic.down += length;
        let left = leave(&mut end.lanes.frames_down, now, length, end.link.down, end.slower);
        let Some(connection) = self.connection(id) else { return };
        let arrives = (left + delay).max(connection.last_down).max(connection.held_until);
        connection.last_down = arrives;
        self.queue.at(arrives, Due::ToWorker { connection: id, bytes });
    }

    pub(crate) fn poll_receive(&mut self, id: u64, waker: &Waker) -> Poll<Result<Vec<u8>, PlatformError>> {
        let Some(connection) = self.connections.get_mut(&id) else { return Poll::Ready(Err(closed())) };
        match connection.inbox.pop_front() {
            Some(bytes) => Poll::Ready(Ok(bytes)),
            None if connection.closed => Poll::Ready(Err(closed())),
            None => {
                connection.reader = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Closes a connection now; the coordinator notices after a while.
    pub(crate) fn cut(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.closed) else {
            return;
        };
        connection.close();
        let endpoint = connection.endpoint;
        let time = self.now() + self.delay(endpoint);
        self.queue.at(time, Due::Lost { connection: id });
    }

    /// The worker lets go of a connection.
    pub(crate) fn drop_connection(&mut self, id: u64) {
        self.cut(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.dropped = true;
            if connection.noticed {
                self.connections.remove(&id);
            }
        }
    }

    /// The coordinator closes a worker's connection, after all that was sent on it has arrived.
    pub(crate) fn close(&mut self, worker: WorkerId) {
        let Some(id) = self.of_worker.remove(&worker) else { return };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.worker = None;
            let time = connection.last_down + Duration::from_micros(1);
            self.queue.at(time, Due::Lost { connection: id });
        }
    }

    /// The coordinator is gone: all connections close, and nobody is known any more.
    pub(crate) fn close_all(&mut self) {
        self.of_worker.clear();
        let all: Vec<u64> = self.connections.keys().copied().collect();
        for id in all {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.worker = None;
            }
            self.cut(id);
        }
    }

    // Files.

    /// When a request is answered that takes so many bytes up and down.
    pub(crate) fn request(&mut self, endpoint: usize, up: u64, down: u64) -> Duration {
        let now = self.now();
        let end = &mut self.endpoints[endpoint];
        let Endpoint { link, slower, .. } = *end;
        let way = seconds(link.latency * slower);
        let asked = if up > 0 { leave(&mut end.lanes.files_up, now, up, link.up, slower) } else { now } + way;
        let answered =
            if down > 0 { leave(&mut end.lanes.files_down, asked, down, link.down, slower) } else { asked };
        answered + way
    }

    /// Whether a request reaches the coordinator, now that its time has come.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn answer(&mut self) -> Result<(), PlatformError> {
        let fails = self.weather.failing.is_some_and(|share| self.draws.below(share) == 0);
        if fails || !self.open {
            return Err(PlatformError("the request failed".into()));
        }
        Ok(())
    }

    /// A piece of a file has arrived at the store.
    ///
    /// # Errors
    /// When the whole is not what its hash says.
    pub(crate) fn put(
        &mut self,
        endpoint: usize,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, PlatformError> {
        if self.files.contains_key(&hash) {
            return Ok(Put::Whole);
        }
        let stored = self.partial.entry(hash).or_default();
        if stored.len() as u64 != first {
            return Ok(Put::GoOnAt(stored.len() as u64));
        }
        stored.extend_from_slice(piece);
        if std::mem::take(&mut self.endpoints[endpoint].garble) {
            flip(stored);
        }
        if (stored.len() as u64) < total {
            return Ok(Put::More);
        }
        let whole = self.partial.remove(&hash).unwrap_or_default();
        if BlobHash::of(&whole) != hash {
            return Err(PlatformError("the file does not match its hash".into()));
        }
        self.files.insert(hash, Rc::new(whole));
        Ok(Put::Whole)
    }
}

impl Connection {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn close(&mut self) {
        self.closed = true;
        self.wake();
    }
}

fn is_tensor(bytes: &[u8]) -> bool {
    frame::decode::<FromWorker>(bytes).is_ok_and(|frame| matches!(frame.message, FromWorker::Relayed(_)))
}

fn flip(bytes: &mut [u8]) {
    if let Some(last) = bytes.last_mut() {
        *last ^= 4;
    }
}
