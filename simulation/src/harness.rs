//! The coordinator and all workers of a run on one thread and in virtual time: real decisions and real sessions, around
//! a virtual network.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use control::{Event, Mode, Record, Run, action::Action};
use futures::{
    executor::LocalPool,
    future::{AbortHandle, Abortable},
    task::LocalSpawnExt,
};
use protocol::{
    frame::{self, Frame},
    message::{Down, FromWorker, Hello, Probe, ProbeAnswer, Refuse, Relayed, ToWorker, Up},
    refusal::Refusal,
    view::Phase,
    worker_id::WorkerId,
};
use worker::End;

use crate::{
    clock::seconds,
    disturbance::{Disturbance, What},
    error::SimulationError,
    liar,
    network::{Arrival, Network, Shared},
    virtual_worker::{Pace, WorkerSpec, session},
};

/// Virtual time between two ticks of the coordinator.
const TICK: Duration = Duration::from_secs(1);
/// Rounds taken back in a row before the run is given up.
const MOST_IN_VAIN: u32 = 100;
/// Seconds between a Hello and the loss of the connection of a worker whose network does not hold.
const FLAP_SECONDS: f64 = 0.5;

/// What carries out the decisions of one mode: the virtual coordinator's runtime.
pub trait Runtime {
    /// The mode whose actions it carries out.
    type Mode: Mode;
    /// What it writes to the virtual disk.
    type Write;

    /// The run as it goes on from what is on the disk: at the beginning, and after the coordinator was killed.
    ///
    /// # Errors
    /// When it cannot be had from there.
    fn begin(&mut self, network: &mut Network) -> Result<Run<Self::Mode>, SimulationError>;

    /// Does what was decided.
    ///
    /// # Errors
    /// When the run cannot go on.
    fn act(
        &mut self,
        action: <Self::Mode as Mode>::Action,
        desk: &mut Desk<'_, Self>,
    ) -> Result<(), SimulationError>;

    /// A frame for another worker has come: who gets it, if anybody.
    ///
    /// # Errors
    /// Why the frame and its sender are turned away.
    fn relay(
        &mut self,
        from: WorkerId,
        message: &Relayed,
        payload: &[u8],
    ) -> Result<Option<WorkerId>, Refusal>;

    /// A message for the coordinator has come; gives what is passed on.
    ///
    /// # Errors
    /// When the run cannot go on.
    fn said(
        &mut self,
        _worker: WorkerId,
        message: Up,
        _desk: &mut Desk<'_, Self>,
    ) -> Result<Option<Up>, SimulationError> {
        Ok(Some(message))
    }

    /// What was written is on the disk. Gives the word of it, for a coordinator that still lives.
    fn written(&mut self, write: Self::Write) -> Option<<Self::Mode as Mode>::Event>;
}

/// How long the coordinator's disk takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Disk {
    /// No time: what is written is there at once.
    Instant,
    /// Up to so many seconds.
    Seconds(f64),
}

enum Told<E> {
    Common(Event),
    Mode(E),
}

enum Alarm<R: Runtime + ?Sized> {
    Tick,
    Join(usize),
    Leave { endpoint: usize, pace_number: u64, away: f64 },
    Cut(u64),
    Say(WorkerId, Up),
    Written { generation: u64, write: R::Write },
    Restart,
}

/// Things under way at the coordinator.
struct Pending<R: Runtime + ?Sized> {
    told: VecDeque<Told<<R::Mode as Mode>::Event>>,
    alarms: BTreeMap<u64, Alarm<R>>,
    generation: u64,
    disk: Disk,
    full_until: Duration,
}

/// What a runtime has before it: the network, the disk, and the way back to the run.
pub struct Desk<'a, R: Runtime + ?Sized> {
    /// The network and the store.
    pub network: &'a mut Network,
    pending: &'a mut Pending<R>,
    seats: &'a [Seat],
}

impl<R: Runtime + ?Sized> Desk<'_, R> {
    /// Sends a message, with the payload that follows its header.
    ///
    /// # Errors
    /// When there is no such frame.
    pub fn send(
        &mut self,
        worker: WorkerId,
        message: impl Into<Down>,
        payload: &[u8],
    ) -> Result<(), SimulationError> {
        if let Some(connection) = self.network.connection_of(worker) {
            let bytes = frame::encode(&ToWorker::from(message.into()), payload)?;
            self.network.send_down(connection, bytes);
        }
        Ok(())
    }

    /// Tells the run something of its mode, at once.
    pub fn tell(&mut self, event: <R::Mode as Mode>::Event) {
        self.pending.told.push_back(Told::Mode(event));
    }

    /// Writes to the disk; [`Runtime::written`] follows when it is there.
    pub fn write(&mut self, write: R::Write) {
        let time = match self.pending.disk {
            Disk::Instant => self.network.now(),
            Disk::Seconds(most) => self.network.now() + seconds(most * self.network.draws.even()),
        };
        let generation = self.pending.generation;
        self.alarm(time, Alarm::Written { generation, write });
    }

    /// Whether the disk takes nothing at the moment.
    pub fn is_disk_full(&self) -> bool {
        self.pending.full_until > self.network.now()
    }

    /// Has a message of a worker come after so many seconds.
    pub(crate) fn say_later(&mut self, length: f64, worker: WorkerId, message: Up) {
        let time = self.network.now() + seconds(length);
        self.alarm(time, Alarm::Say(worker, message));
    }

    /// Has a worker compute and send so many times as slowly from now on.
    pub(crate) fn slow_down(&mut self, endpoint: usize, compute: f64, link: f64) {
        self.network.endpoints[endpoint].slower = link;
        self.seats[endpoint].pace.slow_down(compute);
    }

    /// Has a worker close its tab after so many seconds, and come back anew after as many as it is `away`.
    pub(crate) fn leave_later(&mut self, endpoint: usize, length: f64, away: f64) {
        let time = self.network.now() + seconds(length);
        let pace_number = self.seats[endpoint].sessions;
        self.alarm(time, Alarm::Leave { endpoint, pace_number, away });
    }

    fn alarm(&mut self, time: Duration, what: Alarm<R>) {
        let number = self.network.alarm(time);
        self.pending.alarms.insert(number, what);
    }
}

/// A virtual worker as the harness knows it. Its number is that of its end of the network.
struct Seat {
    pace: Pace,
    abort: Option<AbortHandle>,
    /// Sessions begun.
    sessions: u64,
    /// How its last session ended.
    ended: Rc<RefCell<Option<End>>>,
    /// Until then nothing but heartbeats comes of it.
    silent_until: Duration,
    dies_when_ready: bool,
    /// Connections that will be lost right after their Hello.
    flaps: u32,
    /// It says of its times and losses whatever it likes.
    lies: bool,
}

/// A whole run in virtual time.
pub struct Harness<R: Runtime> {
    // Dropped first: what its tasks hold lets go of the network.
    pool: LocalPool,
    network: Shared,
    runtime: R,
    run: Run<R::Mode>,
    pending: Pending<R>,
    seats: Vec<Seat>,
    next_worker: u64,
    disturbances: VecDeque<Disturbance>,
    newcomer: Option<WorkerSpec>,
    records: Vec<Record>,
    in_vain: u32,
    /// What workers say is checked when its frame is read; a liar keeps within that.
    lies: u64,
}

impl<R: Runtime> Harness<R> {
    /// A run without workers.
    ///
    /// # Errors
    /// When the runtime cannot begin.
    pub fn new(mut runtime: R, network: Network, disk: Disk) -> Result<Self, SimulationError> {
        let mut network = network;
        let run = runtime.begin(&mut network)?;
        let first = network.alarm(network.now() + TICK);
        let pending = Pending {
            told: VecDeque::new(),
            alarms: BTreeMap::from([(first, Alarm::Tick)]),
            generation: 0,
            disk,
            full_until: Duration::ZERO,
        };
        Ok(Self {
            pool: LocalPool::new(),
            network: Rc::new(RefCell::new(network)),
            runtime,
            run,
            pending,
            seats: vec![],
            next_worker: 0,
            disturbances: VecDeque::new(),
            newcomer: None,
            records: vec![],
            in_vain: 0,
            lies: 0,
        })
    }

    /// Has the run disturbed; `newcomer` is who comes where somebody joins.
    pub fn disturb(&mut self, mut disturbances: Vec<Disturbance>, newcomer: WorkerSpec) {
        disturbances.sort_by_key(|disturbance| disturbance.after);
        self.disturbances = disturbances.into();
        self.newcomer = Some(newcomer);
    }

    /// From now on nothing is disturbed.
    pub fn calm(&mut self) {
        self.disturbances.clear();
        for seat in &mut self.seats {
            (seat.silent_until, seat.dies_when_ready, seat.flaps, seat.lies) =
                (Duration::ZERO, false, 0, false);
        }
    }

    /// Another worker comes.
    ///
    /// # Errors
    /// When its session cannot be started.
    pub fn join(&mut self, spec: WorkerSpec) -> Result<(), SimulationError> {
        let endpoint = self.network.borrow_mut().add_endpoint(spec.link);
        self.seats.push(Seat {
            pace: Pace::new(spec),
            abort: None,
            sessions: 0,
            ended: Rc::default(),
            silent_until: Duration::ZERO,
            dies_when_ready: false,
            flaps: 0,
            lies: false,
        });
        self.start(endpoint)
    }

    /// Starts a session, with nothing from an earlier one.
    fn start(&mut self, endpoint: usize) -> Result<(), SimulationError> {
        let (abort, registration) = AbortHandle::new_pair();
        let seat = &mut self.seats[endpoint];
        seat.abort = Some(abort);
        seat.sessions += 1;
        *seat.ended.borrow_mut() = None;
        let (ended, pace) = (seat.ended.clone(), seat.pace.clone());
        let session = Abortable::new(session(self.network.clone(), endpoint, pace), registration);
        self.pool.spawner().spawn_local(async move {
            if let Ok(end) = session.await {
                *ended.borrow_mut() = Some(end);
            }
        })?;
        Ok(())
    }

    /// Ends a worker's session as if its process were killed.
    fn kill(&mut self, endpoint: usize) {
        if let Some(abort) = self.seats[endpoint].abort.take() {
            abort.abort();
        }
        let mut network = self.network.borrow_mut();
        if let Some(connection) = network.endpoints[endpoint].connection {
            network.cut(connection);
        }
    }

    /// Lets time pass until the run is over, or until `limit`. Gives the phase it is in then.
    ///
    /// # Errors
    /// When the run cannot go on.
    pub fn run(&mut self, limit: Duration) -> Result<Phase, SimulationError> {
        while !self.step(limit)? {}
        Ok(self.run.phase())
    }

    /// Lets the next thing happen. True when the run is over, or nothing happens until `limit`.
    ///
    /// # Errors
    /// When the run cannot go on.
    pub fn step(&mut self, limit: Duration) -> Result<bool, SimulationError> {
        self.pool.run_until_stalled();
        self.disturb_now()?;
        self.pool.run_until_stalled();
        let up = self.network.borrow().open;
        if up && matches!(self.run.phase(), Phase::Finished | Phase::Stopped) {
            return Ok(true);
        }
        self.check_hope()?;
        let (now, next) = {
            let network = self.network.borrow();
            (network.now(), network.next())
        };
        let wake = up.then(|| self.run.wake_at(now)).flatten();
        // One that has passed was heard: seconds in floating point are rounded to the nanoseconds of the clock.
        let wake = wake.map(|wake| wake.max(now + Duration::from_nanos(1)));
        let time = match (next, wake) {
            (None, None) => return Ok(true),
            (Some(next), Some(wake)) => next.min(wake),
            (one, other) => one.or(other).unwrap_or(now),
        };
        if time > limit {
            self.network.borrow_mut().advance(limit);
            return Ok(true);
        }
        if next.is_some_and(|next| next <= time) {
            let arrival = self.network.borrow_mut().step();
            if let Some(arrival) = arrival {
                self.arrived(arrival)?;
            }
        } else {
            self.network.borrow_mut().advance(time);
            self.tell(Event::Tick)?;
        }
        Ok(false)
    }

    /// Fails when nothing more can come of the run.
    fn check_hope(&self) -> Result<(), SimulationError> {
        if self.in_vain >= MOST_IN_VAIN {
            return Err(SimulationError::InVain(MOST_IN_VAIN));
        }
        let comes = |alarm: &Alarm<R>| matches!(alarm, Alarm::Join(_) | Alarm::Leave { .. });
        let over = |seat: &Seat| seat.ended.borrow().clone();
        if !self.seats.is_empty()
            && self.seats.iter().all(|seat| seat.abort.is_some() && over(seat).is_some())
            && !self.pending.alarms.values().any(comes)
        {
            let last = self.seats.iter().rev().find_map(over);
            return Err(SimulationError::NobodyLeft(format!("{last:?}")));
        }
        Ok(())
    }

    fn arrived(&mut self, arrival: Arrival) -> Result<(), SimulationError> {
        match arrival {
            Arrival::Frame { connection, bytes } => self.heard(connection, &bytes),
            Arrival::Lost { worker: None } => Ok(()),
            Arrival::Lost { worker: Some(worker) } => {
                self.tell(Event::Gone { worker, why: "the connection was closed".into() })
            }
            Arrival::Alarm(number) => match self.pending.alarms.remove(&number) {
                Some(alarm) => self.ring(alarm),
                None => Ok(()),
            },
        }
    }

    fn ring(&mut self, alarm: Alarm<R>) -> Result<(), SimulationError> {
        match alarm {
            Alarm::Tick => {
                let mut network = self.network.borrow_mut();
                let next = network.now() + TICK;
                self.pending.alarms.insert(network.alarm(next), Alarm::Tick);
                let up = network.open;
                drop(network);
                if up { self.tell(Event::Tick) } else { Ok(()) }
            }
            Alarm::Join(endpoint) => self.start(endpoint),
            Alarm::Leave { endpoint, pace_number, away } => {
                if self.seats[endpoint].sessions == pace_number {
                    self.kill(endpoint);
                    let mut network = self.network.borrow_mut();
                    let back = network.now() + seconds(away);
                    self.pending.alarms.insert(network.alarm(back), Alarm::Join(endpoint));
                }
                Ok(())
            }
            Alarm::Cut(connection) => {
                self.network.borrow_mut().cut(connection);
                Ok(())
            }
            Alarm::Say(worker, message) => self.tell(Event::Said { worker, message }),
            Alarm::Written { generation, write } => {
                if generation == self.pending.generation {
                    if let Some(event) = self.runtime.written(write) {
                        self.pending.told.push_back(Told::Mode(event));
                    }
                    return self.settle();
                }
                // What was on its way to the disk when the coordinator was killed may be there or not.
                let mut network = self.network.borrow_mut();
                if !network.open && network.draws.below(2) == 0 {
                    let _ = self.runtime.written(write);
                }
                Ok(())
            }
            Alarm::Restart => {
                let mut network = self.network.borrow_mut();
                network.open = true;
                self.run = self.runtime.begin(&mut network)?;
                Ok(())
            }
        }
    }

    /// Tells the run something, and does all that follows from it at once.
    ///
    /// # Errors
    /// When the run cannot go on.
    pub fn tell(&mut self, event: Event) -> Result<(), SimulationError> {
        self.pending.told.push_back(Told::Common(event));
        self.settle()
    }

    fn settle(&mut self) -> Result<(), SimulationError> {
        while let Some(told) = self.pending.told.pop_front() {
            let now = self.network.borrow().now();
            let actions = match told {
                Told::Common(event) => self.run.handle(now, event),
                Told::Mode(event) => self.run.told(now, event),
            };
            for action in actions {
                self.act(action)?;
            }
        }
        Ok(())
    }

    fn desk<T>(&mut self, work: impl FnOnce(&mut R, &mut Desk<'_, R>) -> T) -> T {
        let mut network = self.network.borrow_mut();
        let mut desk = Desk { network: &mut network, pending: &mut self.pending, seats: &self.seats };
        work(&mut self.runtime, &mut desk)
    }

    fn act(&mut self, action: Action<<R::Mode as Mode>::Action>) -> Result<(), SimulationError> {
        match action {
            Action::Send { worker, message } => self.desk(|_, desk| desk.send(worker, message, &[])),
            Action::Close { worker, refusal } => self.desk(|_, desk| {
                desk.send(worker, Refuse(refusal), &[])?;
                desk.network.close(worker);
                Ok(())
            }),
            Action::Mode(action) => self.desk(|runtime, desk| runtime.act(action, desk)),
            Action::Point(_) => Ok(()),
            Action::Record(record) => {
                match &record {
                    Record::RoundTakenBack { .. } => self.in_vain += 1,
                    Record::RoundClosed { .. } => self.in_vain = 0,
                    _ => {}
                }
                self.records.push(record);
                Ok(())
            }
        }
    }

    /// A frame has arrived at the coordinator: what its sessions do with it.
    fn heard(&mut self, id: u64, bytes: &[u8]) -> Result<(), SimulationError> {
        let known = self.network.borrow_mut().connection(id).map(|c| (c.endpoint, c.worker));
        let Some((endpoint, worker)) = known else { return Ok(()) };
        let now = self.network.borrow().now();
        let Frame { message, payload } = match frame::decode::<FromWorker>(bytes) {
            Ok(frame) => frame,
            Err(error) => return self.refuse(id, worker, error.into()),
        };
        let message = match (message, worker) {
            (FromWorker::Up(Up::Hello(hello)), None) => return self.hello(id, endpoint, hello),
            // Of a worker that was turned away.
            (_, None) => return Ok(()),
            (FromWorker::Up(Up::Heartbeat(heartbeat)), Some(_)) => FromWorker::Up(heartbeat.into()),
            _ if self.seats[endpoint].silent_until > now => return Ok(()),
            (message, Some(_)) => message,
        };
        let Some(worker) = worker else { return Ok(()) };
        match message {
            FromWorker::Up(Up::Probe(Probe { number, answer, .. })) => {
                let padding = vec![0; answer as usize];
                self.desk(|_, desk| desk.send(worker, ProbeAnswer { number, padding: answer }, &padding))?;
                self.tell(Event::Heard { worker })
            }
            FromWorker::Relayed(relayed) => match self.runtime.relay(worker, &relayed, payload) {
                Ok(to) => {
                    let mut network = self.network.borrow_mut();
                    if let Some(connection) = to.and_then(|to| network.connection_of(to)) {
                        network.send_down(connection, bytes.to_vec());
                    }
                    drop(network);
                    self.tell(Event::Heard { worker })
                }
                Err(refusal) => self.refuse(id, Some(worker), refusal),
            },
            FromWorker::Up(message) => self.said(endpoint, worker, message),
        }
    }

    fn hello(&mut self, id: u64, endpoint: usize, hello: Hello) -> Result<(), SimulationError> {
        self.next_worker += 1;
        let worker = WorkerId(self.next_worker);
        let mut network = self.network.borrow_mut();
        network.admit(id, worker);
        if self.seats[endpoint].flaps > 0 {
            self.seats[endpoint].flaps -= 1;
            let time = network.now() + seconds(FLAP_SECONDS);
            self.pending.alarms.insert(network.alarm(time), Alarm::Cut(id));
        }
        drop(network);
        self.tell(Event::Joined { worker, hello, token: String::new() })
    }

    fn said(&mut self, endpoint: usize, worker: WorkerId, mut message: Up) -> Result<(), SimulationError> {
        if self.seats[endpoint].lies {
            self.lies += 1;
            liar::lie(&mut message, self.lies);
        }
        let joined = matches!(message, Up::Profile(_));
        let ready = matches!(message, Up::Ready(_) | Up::DeltaReady(_));
        if let Some(message) = self.desk(|runtime, desk| runtime.said(worker, message, desk))? {
            self.tell(Event::Said { worker, message })?;
        }
        if joined {
            // What joining costs is not counted.
            self.network.borrow_mut().endpoints[endpoint].traffic = Default::default();
        }
        if ready && std::mem::take(&mut self.seats[endpoint].dies_when_ready) {
            self.kill(endpoint);
        }
        Ok(())
    }

    fn refuse(&mut self, id: u64, worker: Option<WorkerId>, refusal: Refusal) -> Result<(), SimulationError> {
        self.tell(Event::Refused { worker, refusal: refusal.clone() })?;
        let why = refusal.to_string();
        let bytes = frame::encode(&ToWorker::from(Down::from(Refuse(refusal))), &[])?;
        self.network.borrow_mut().send_down(id, bytes);
        let Some(worker) = worker else { return Ok(()) };
        self.network.borrow_mut().close(worker);
        self.tell(Event::Gone { worker, why })
    }

    fn disturb_now(&mut self) -> Result<(), SimulationError> {
        let carried = self.network.borrow().carried;
        while self.disturbances.front().is_some_and(|disturbance| disturbance.after <= carried) {
            let Some(Disturbance { what, whom, .. }) = self.disturbances.pop_front() else { break };
            match what {
                What::Join => {
                    if let Some(newcomer) = self.newcomer.clone() {
                        self.join(newcomer)?;
                    }
                }
                What::KillCoordinator(length) => self.kill_coordinator(length),
                What::FullDisk(length) => {
                    self.pending.full_until = self.network.borrow().now() + seconds(f64::from(length));
                }
                what => self.disturb_worker(what, whom),
            }
        }
        Ok(())
    }

    fn disturb_worker(&mut self, what: What, whom: u64) {
        let alive: Vec<usize> =
            (0..self.seats.len()).filter(|seat| self.seats[*seat].abort.is_some()).collect();
        if alive.is_empty() {
            return;
        }
        let endpoint = alive[(whom % alive.len() as u64) as usize];
        if what == What::Kill {
            return self.kill(endpoint);
        }
        let mut network = self.network.borrow_mut();
        let now = network.now();
        let later = |length: u32| now + seconds(f64::from(length));
        let id = network.endpoints[endpoint].connection;
        let seat = &mut self.seats[endpoint];
        match what {
            What::Deaf(length) => network.endpoints[endpoint].deaf_until = later(length),
            What::Garble => network.endpoints[endpoint].garble = true,
            What::Silent(length) => seat.silent_until = later(length),
            What::DiesWhenReady => seat.dies_when_ready = true,
            What::Flap(times) => seat.flaps = times,
            What::Lie => seat.lies = true,
            What::Cut => {
                if let Some(id) = id {
                    network.cut(id);
                }
            }
            _ => {
                let Some(connection) = id.and_then(|id| network.connection(id)) else { return };
                match what {
                    What::HoldUp(length) => connection.held_until = later(length),
                    What::Double => connection.double = true,
                    What::Swap => connection.swap = true,
                    What::Lose => connection.lose = true,
                    _ => {}
                }
            }
        }
    }

    fn kill_coordinator(&mut self, length: u32) {
        self.pending.generation += 1;
        self.pending.told.clear();
        // Killed while it is down: it starts once, at the later time.
        self.pending.alarms.retain(|_, alarm| !matches!(alarm, Alarm::Restart | Alarm::Say(..)));
        let mut network = self.network.borrow_mut();
        network.open = false;
        network.close_all();
        let start = network.now() + seconds(f64::from(length));
        self.pending.alarms.insert(network.alarm(start), Alarm::Restart);
    }

    /// The run as it is decided.
    pub fn decided(&self) -> &Run<R::Mode> {
        &self.run
    }

    /// What carries the decisions out.
    pub fn runtime(&self) -> &R {
        &self.runtime
    }

    /// The virtual time.
    pub fn now(&self) -> Duration {
        self.network.borrow().now()
    }

    /// Frames that have arrived so far.
    pub fn carried(&self) -> u64 {
        self.network.borrow().carried
    }

    /// Looks at the network and the store.
    pub fn with_network<T>(&self, look: impl FnOnce(&Network) -> T) -> T {
        look(&self.network.borrow())
    }

    /// Everything that the event log of a real run would hold, so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Gives the records away.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }
}
