//! What both modes share: who is there, what was refused, in which phase the run is and why; and the turn in which one
//! event is taken in.

use std::{collections::BTreeMap, time::Duration};

use protocol::{
    message::{Down, DrainReason, Header, Up},
    refusal::Refusal,
    view::{CurvePoint, Phase},
    worker_id::WorkerId,
};

use crate::{action::Action, curve::Curve, record::Record, roster::Roster, settings::Settings};

/// Whether a fault counts against the worker that reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It held a part, and nobody else can have caused it.
    Counts,
    /// It held a part, and another may have caused it.
    Excused,
    /// Of a plan or round that has ended: honest workers report such faults while a new one is under way.
    Stale,
    /// It held nothing that could have failed.
    Unfounded,
}

/// The part of a run that is the same in both modes.
#[derive(Debug, Clone)]
pub struct RunCore {
    /// What does not change, but for M once it is chosen.
    pub settings: Settings,
    /// The workers that are connected.
    pub roster: Roster,
    /// Frames, reports and workers turned away, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// The learning curve.
    pub curve: Curve,
    /// The organizer wants it to hold.
    pub paused: bool,
    /// The organizer wants it to end.
    pub stopping: bool,
    /// The first plan or round has been made: `start_with` no longer matters.
    pub started: bool,
    /// How it has ended.
    pub over: Option<DrainReason>,
    /// Why nothing can be kept at the moment, in words; nothing new begins meanwhile.
    pub storage_fault: Option<String>,
    phase: Phase,
    reason: String,
}

impl RunCore {
    pub(crate) fn new(settings: Settings, started: bool, curve: Curve) -> Self {
        Self {
            settings,
            roster: Roster::default(),
            refusals: BTreeMap::new(),
            curve,
            paused: false,
            stopping: false,
            started,
            over: None,
            storage_fault: None,
            phase: Phase::Waiting,
            reason: String::new(),
        }
    }

    /// In which phase the run is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Why, for a person.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Why nothing new may begin now, with the phase that goes with it: the organizer's pause, or the disk.
    pub fn held(&self) -> Option<(Phase, String)> {
        if self.paused {
            return Some((Phase::Paused, "paused by the organizer".into()));
        }
        let fault = self.storage_fault.as_ref()?;
        Some((
            Phase::Paused,
            format!("held: {fault}; the run goes on by itself once the disk takes writes again"),
        ))
    }
}

/// One event being taken in: the time, the core, and where actions go.
pub struct Turn<'a, A> {
    /// The time of the event.
    pub now: Duration,
    /// What both modes share.
    pub core: &'a mut RunCore,
    out: &'a mut Vec<Action<A>>,
}

impl<'a, A> Turn<'a, A> {
    /// The turn of one event, whose actions go to `out`.
    pub(crate) fn new(now: Duration, core: &'a mut RunCore, out: &'a mut Vec<Action<A>>) -> Self {
        Self { now, core, out }
    }

    /// Say why and close a worker's connection.
    pub(crate) fn close(&mut self, worker: WorkerId, refusal: Refusal) {
        self.out.push(Action::Close { worker, refusal });
    }

    /// Send a message.
    pub fn send(&mut self, worker: WorkerId, message: impl Into<Down>) {
        self.out.push(Action::Send { worker, message: message.into() });
    }

    /// Append to the event log.
    pub fn record(&mut self, record: Record) {
        self.out.push(Action::Record(record));
    }

    /// Do something of the mode.
    pub fn act(&mut self, action: A) {
        self.out.push(Action::Mode(action));
    }

    /// Add a point to the learning curve.
    pub fn publish(&mut self, point: CurvePoint) {
        self.core.curve.push(point.clone());
        self.record(Record::Point { point: point.clone() });
        self.out.push(Action::Point(point));
    }

    /// Be in a phase for a reason; a change of phase goes into the event log.
    pub fn enter(&mut self, phase: Phase, reason: impl Into<String>) {
        let reason = reason.into();
        if self.core.phase != phase {
            self.record(Record::Phase { phase, reason: reason.clone() });
        }
        self.core.phase = phase;
        self.core.reason = reason;
    }

    /// Stay in the phase for another reason.
    pub fn explain(&mut self, reason: impl Into<String>) {
        self.core.reason = reason.into();
    }

    /// Count a refusal.
    pub fn count_refusal(&mut self, name: &str) {
        *self.core.refusals.entry(name.into()).or_default() += 1;
    }

    /// Count and record a refusal.
    pub fn refused(&mut self, worker: Option<WorkerId>, refusal: &Refusal) {
        self.count_refusal(refusal.name());
        let (refusal, words) = (refusal.name().to_string(), refusal.to_string());
        self.record(Record::WorkerRefused { worker, refusal, words });
    }

    /// Note a fault against a worker, which is given no work for a while: longer with each further one.
    pub fn suspend(&mut self, worker: WorkerId, name: &str, words: &str) {
        self.count_refusal(name);
        self.core.roster.suspend(worker, self.now);
        let (refusal, words) = (name.to_string(), words.to_string());
        self.record(Record::WorkerRefused { worker: Some(worker), refusal, words });
    }
}

/// A message that is not for a worker to send now, or in this mode.
pub(crate) fn unexpected(message: &Up) -> Refusal {
    Refusal::Unexpected {
        message: message.name().into(),
        detail: "it is not for a worker to say at this point".into(),
    }
}
