//! A run in one of the modes: the one place where an event comes in and a decision goes out.

use std::time::Duration;

use protocol::{
    message::{Drain, DrainReason, Fault, HeartbeatAnswer, Profile, Up},
    refusal::Refusal,
    view::{CurvePoint, Phase, RunView},
    worker_id::WorkerId,
};

use crate::{
    action::Action,
    admission,
    core::{RunCore, Standing, Turn, unexpected},
    curve::Curve,
    event::{Command, Event},
    plausible,
    record::Record,
    settings::Settings,
};

/// What a mode of training adds to the core.
pub trait Mode {
    /// What happens in this mode alone.
    type Event;
    /// What is to be done in this mode alone.
    type Action;

    /// A worker of the roster said something that is not the same in both modes.
    ///
    /// # Errors
    /// Why it is turned away for it. Whatever was right before stays so.
    fn said(
        &mut self,
        turn: &mut Turn<'_, Self::Action>,
        worker: WorkerId,
        message: Up,
    ) -> Result<(), Refusal>;

    /// A worker has measured itself.
    fn profiled(&mut self, turn: &mut Turn<'_, Self::Action>, worker: WorkerId);

    /// Something went wrong inside a worker; says whether that counts against it.
    fn failed(&mut self, turn: &mut Turn<'_, Self::Action>, worker: WorkerId, fault: &Fault) -> Standing;

    /// A worker has left the roster.
    fn left(&mut self, turn: &mut Turn<'_, Self::Action>, worker: WorkerId, why: &str);

    /// Something has happened in this mode.
    fn told(&mut self, turn: &mut Turn<'_, Self::Action>, event: Self::Event);

    /// The coordinator itself stood still for so long: nobody is late by it.
    fn forgive(&mut self, time: Duration);

    /// Time has passed.
    fn tick(&mut self, turn: &mut Turn<'_, Self::Action>);

    /// The organizer has asked for something; the core has noted it.
    fn asked(&mut self, turn: &mut Turn<'_, Self::Action>, command: Command);

    /// Whatever can go on goes on. Called once after every event, but for signs of life.
    fn advance(&mut self, turn: &mut Turn<'_, Self::Action>);

    /// The run has ended: nothing is under way any more.
    fn ended(&mut self, turn: &mut Turn<'_, Self::Action>);

    /// When to be woken by a tick, if nothing happens before; None: the regular ticks are enough.
    fn wake_at(&self, now: Duration) -> Option<Duration>;

    /// What the pages show.
    fn view(&self, core: &RunCore, now: Duration) -> RunView;
}

/// A run in one of the modes: events in, actions out.
#[derive(Debug, Clone)]
pub struct Run<M> {
    core: RunCore,
    mode: M,
}

impl<M: Mode> Run<M> {
    /// `started` says that it goes on where an earlier process ended, whose curve is given.
    pub(crate) fn with(settings: Settings, started: bool, curve: Curve, mode: M) -> Self {
        let mut run = Self { core: RunCore::new(settings, started, curve), mode };
        // Nothing can be done yet; this finds the words for the first view.
        run.turn(Duration::ZERO, |_, _| Decides::Yes);
        run
    }

    /// Takes an event in, and gives the actions out that follow from it.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action<M::Action>> {
        self.turn(now, |mode, turn| take_in(mode, turn, event))
    }

    /// Takes an event of the mode in, and gives the actions out that follow from it.
    pub fn told(&mut self, now: Duration, event: M::Event) -> Vec<Action<M::Action>> {
        self.turn(now, |mode, turn| {
            mode.told(turn, event);
            Decides::Yes
        })
    }

    fn turn(
        &mut self,
        now: Duration,
        take: impl FnOnce(&mut M, &mut Turn<'_, M::Action>) -> Decides,
    ) -> Vec<Action<M::Action>> {
        let mut out = Vec::new();
        let mut turn = Turn::new(now, &mut self.core, &mut out);
        let decides = take(&mut self.mode, &mut turn);
        if decides == Decides::Yes && turn.core.over.is_none() {
            self.mode.advance(&mut turn);
        }
        out
    }

    /// What both modes share.
    pub fn core(&self) -> &RunCore {
        &self.core
    }

    /// What the mode has decided.
    pub fn mode(&self) -> &M {
        &self.mode
    }

    /// In which phase the run is.
    pub fn phase(&self) -> Phase {
        self.core.phase()
    }

    /// The learning curve so far.
    pub fn curve(&self) -> &[CurvePoint] {
        self.core.curve.points()
    }

    /// When to be woken by a tick, if nothing happens before.
    pub fn wake_at(&self, now: Duration) -> Option<Duration> {
        self.core.over.is_none().then(|| self.mode.wake_at(now)).flatten()
    }

    /// What the pages show.
    pub fn view(&self, now: Duration) -> RunView {
        self.mode.view(&self.core, now)
    }
}

/// Whether anything may go on by an event.
#[derive(PartialEq, Eq)]
enum Decides {
    Yes,
    /// A sign of life: it is only noted. With thousands of workers nearly all events are such.
    No,
}

fn take_in<M: Mode>(mode: &mut M, turn: &mut Turn<'_, M::Action>, event: Event) -> Decides {
    let decides = match &event {
        Event::Heard { .. } | Event::PingMeasured { .. } => Decides::No,
        Event::Said { message: Up::Heartbeat(_), .. } => Decides::No,
        _ => Decides::Yes,
    };
    match event {
        Event::Joined { worker, hello, token } => {
            if let Err(refusal) = admission::admit(turn, worker, hello, token) {
                turn.refused(Some(worker), &refusal);
                turn.close(worker, refusal);
            }
        }
        Event::Said { worker, message } => {
            turn.core.roster.heard(worker, turn.now);
            if turn.core.roster.contains(worker)
                && let Err(refusal) = said(mode, turn, worker, message)
            {
                close(mode, turn, worker, refusal);
            }
        }
        Event::Heard { worker } => turn.core.roster.heard(worker, turn.now),
        Event::PingMeasured { worker, round_trip } => turn.core.roster.pinged(worker, round_trip),
        Event::Refused { worker, refusal } => turn.refused(worker, &refusal),
        Event::Gone { worker, why } => leave(mode, turn, worker, &why),
        Event::Asked(command) => asked(mode, turn, command),
        Event::Storage(Ok(())) => turn.core.storage_fault = None,
        Event::Storage(Err(words)) => {
            turn.count_refusal("storage");
            turn.core.storage_fault = Some(words);
        }
        Event::Stalled(time) => {
            turn.core.roster.forgive(time);
            mode.forgive(time);
        }
        Event::Tick => {
            let lease = turn.core.settings.lease;
            for worker in turn.core.roster.silent(turn.now, lease) {
                close(mode, turn, worker, Refusal::LeaseEnded { seconds: lease.as_secs() as u32 });
            }
            mode.tick(turn);
        }
    }
    decides
}

fn said<M: Mode>(
    mode: &mut M,
    turn: &mut Turn<'_, M::Action>,
    worker: WorkerId,
    message: Up,
) -> Result<(), Refusal> {
    match message {
        Up::Heartbeat(_) => {
            turn.send(worker, HeartbeatAnswer {});
            Ok(())
        }
        Up::Profile(profile) => profiled(mode, turn, worker, profile),
        Up::Leaving(leaving) => {
            leave(mode, turn, worker, &leaving.reason);
            Ok(())
        }
        // Nothing can fail any more.
        Up::Fault(_) if turn.core.over.is_some() => Ok(()),
        Up::Fault(fault) => {
            match mode.failed(turn, worker, &fault) {
                Standing::Counts => turn.suspend(worker, fault.kind.name(), &fault.detail),
                Standing::Excused => {
                    turn.count_refusal(fault.kind.name());
                    let (refusal, words) = (fault.kind.name().to_string(), fault.detail);
                    turn.record(Record::WorkerRefused { worker: Some(worker), refusal, words });
                }
                Standing::Stale => {}
                Standing::Unfounded => {
                    let detail =
                        "a fault counts only from a worker that holds a part of the current plan or round"
                            .into();
                    return turn.core.roster.unfounded(worker, "Fault", detail);
                }
            }
            Ok(())
        }
        // The session answers probes, and a second Hello is nobody's.
        Up::Probe(_) | Up::Hello(_) => Err(unexpected(&message)),
        Up::Ready(_)
        | Up::StepReport(_)
        | Up::ValidationReport(_)
        | Up::SnapshotReady(_)
        | Up::Decoded(_)
        | Up::DeltaReady(_)
        | Up::EvaluationReport(_) => mode.said(turn, worker, message),
    }
}

fn profiled<M: Mode>(
    mode: &mut M,
    turn: &mut Turn<'_, M::Action>,
    worker: WorkerId,
    profile: Profile,
) -> Result<(), Refusal> {
    if !turn.core.roster.expects_profile(worker) {
        let detail =
            "a worker says what it has measured when it is asked to measure itself, once each time".into();
        return Err(Refusal::Unexpected { message: "Profile".into(), detail });
    }
    plausible::profile(&profile, &turn.core.settings.run)?;
    turn.record(Record::WorkerProfiled {
        worker,
        backend: profile.backend,
        device: profile.device.clone(),
        layer_seconds: profile.layer.total(),
        link: profile.link,
    });
    turn.core.roster.profiled(worker, profile);
    mode.profiled(turn, worker);
    Ok(())
}

fn leave<M: Mode>(mode: &mut M, turn: &mut Turn<'_, M::Action>, worker: WorkerId, why: &str) {
    if !turn.core.roster.leave(worker) {
        return;
    }
    turn.record(Record::WorkerLeft { worker, why: why.into() });
    mode.left(turn, worker, why);
}

/// Turn a worker away and go on without it.
fn close<M: Mode>(mode: &mut M, turn: &mut Turn<'_, M::Action>, worker: WorkerId, refusal: Refusal) {
    let words = refusal.to_string();
    turn.refused(Some(worker), &refusal);
    turn.close(worker, refusal);
    leave(mode, turn, worker, &words);
}

fn asked<M: Mode>(mode: &mut M, turn: &mut Turn<'_, M::Action>, command: Command) {
    if turn.core.over.is_some() {
        return;
    }
    match command {
        Command::Start => {
            turn.core.paused = false;
            // The organizer need not wait for as many as the run's file says.
            turn.core.started = true;
        }
        Command::Pause => turn.core.paused = true,
        Command::Stop => turn.core.stopping = true,
        Command::Remove(worker) => {
            if turn.core.roster.contains(worker) {
                close(mode, turn, worker, Refusal::Removed);
            }
            return;
        }
    }
    mode.asked(turn, command);
}

/// End the run: everybody is told.
pub(crate) fn end<M: Mode>(mode: &mut M, turn: &mut Turn<'_, M::Action>, reason: DrainReason, words: &str) {
    mode.ended(turn);
    turn.core.over = Some(reason);
    for worker in turn.core.roster.ids() {
        turn.send(worker, Drain { reason });
    }
    let phase = match reason {
        DrainReason::Finished => Phase::Finished,
        DrainReason::Stopped => Phase::Stopped,
    };
    turn.enter(phase, words);
}
