//! The coordinator and all workers of a run on one thread and in virtual time: real decisions and real sessions, around
//! a virtual network.

mod disturb;
mod runtime;
mod sessions;

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
use protocol::{message::Refuse, view::Phase};
use worker::End;

use crate::{
    clock::seconds,
    disturbance::Disturbance,
    error::SimulationError,
    network::{Arrival, Network, Shared},
    session::session,
    virtual_worker::{Pace, WorkerSpec},
};
use runtime::{Alarm, Pending, Told};

pub use runtime::{Desk, Disk, Runtime};

/// Virtual time between two ticks of the coordinator.
const TICK: Duration = Duration::from_secs(1);
/// Rounds taken back in a row before the run is given up.
const MOST_IN_VAIN: u32 = 100;

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
            Alarm::Leave { endpoint, session, away } => {
                if self.seats[endpoint].sessions == session {
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
