//! What carries out the decisions of one mode, and what it has before it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use control::{Event, Mode, Run};
use protocol::{
    frame,
    message::{Down, Relayed, ToWorker, Up},
    refusal::Refusal,
    worker_id::WorkerId,
};

use super::Seat;
use crate::{clock::seconds, error::SimulationError, network::Network};

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

/// What the run is told.
pub(super) enum Told<E> {
    Common(Event),
    Mode(E),
}

/// What happens at a time that was set.
pub(super) enum Alarm<R: Runtime + ?Sized> {
    Tick,
    Join(usize),
    Leave { endpoint: usize, session: u64, away: f64 },
    Cut(u64),
    Say(WorkerId, Up),
    Written { generation: u64, write: R::Write },
    Restart,
}

/// Things under way at the coordinator.
pub(super) struct Pending<R: Runtime + ?Sized> {
    pub(super) told: VecDeque<Told<<R::Mode as Mode>::Event>>,
    pub(super) alarms: BTreeMap<u64, Alarm<R>>,
    pub(super) generation: u64,
    pub(super) disk: Disk,
    pub(super) full_until: Duration,
}

/// What a runtime has before it: the network, the disk, and the way back to the run.
pub struct Desk<'a, R: Runtime + ?Sized> {
    /// The network and the store.
    pub network: &'a mut Network,
    pub(super) pending: &'a mut Pending<R>,
    pub(super) seats: &'a [Seat],
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
        let session = self.seats[endpoint].sessions;
        self.alarm(time, Alarm::Leave { endpoint, session, away });
    }

    fn alarm(&mut self, time: Duration, what: Alarm<R>) {
        let number = self.network.alarm(time);
        self.pending.alarms.insert(number, what);
    }
}
