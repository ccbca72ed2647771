//! The virtual network: frames and files over links with a latency and bandwidths, with their real bytes counted.
//!
//! Frames wait for each other on each way of a worker's link, and so do files; the two do not share the bandwidth, as
//! little else but heartbeats goes beside a file. A seed gives the same network.

mod connections;
mod files;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use control::record::Traffic;
use protocol::{blob::BlobHash, worker_id::WorkerId};

use crate::{
    chance::Draws,
    clock::{Queue, Ticket, seconds},
    stand_in::StandIn,
};
use connections::Connection;

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
}

/// When so many bytes have left, on a way that was taken up to `lane`.
fn leave(lane: &mut Duration, now: Duration, bytes: u64, rate: f64, slower: f64) -> Duration {
    *lane = now.max(*lane) + seconds(slower * bytes as f64 / rate);
    *lane
}

fn flip(bytes: &mut [u8]) {
    if let Some(last) = bytes.last_mut() {
        *last ^= 4;
    }
}
