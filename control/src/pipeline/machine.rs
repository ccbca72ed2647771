//! The run itself: events in, actions out.
//!
//! A run waits for workers, makes a plan, has the stages loaded, and then takes one optimizer step after
//! the other. At every step boundary it may hold (pause), end, or change the plan; when a worker of the
//! plan vanishes it goes back to the last snapshot with whoever is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use engine::learning_rate::LearningRate;
use protocol::{
    message::{
        Address, Apply, DrainReason, Fault, Hello, Message, Pass, Profile, SnapshotReady, StepReport,
        ValidationReport,
    },
    refusal::Refusal,
    spec::{Assignment, RunSpec, WeightSource},
    view::{CurvePoint, Phase, RunView, WorkerState},
};

use super::{
    door,
    event::{Action, Command, Event, Half, Record, WorkerId},
    relay::Relay,
    roster::{Roster, check_profile},
    snapshot::{Collecting, Manifest},
    step::{StepInFlight, clip_scale},
};
use crate::plan::{self, Plan, Stages};

/// A newcomer's plan must promise to be faster than the one in force by this factor, or nothing is moved.
const REPLAN_GAIN: f64 = 1.1;

/// A pace that has changed by less than this factor since the plan was made has not changed.
const DRIFT: f64 = 1.15;
/// A plan for workers whose pace has changed must promise to be faster by this factor, ...
const DRIFT_GAIN: f64 = 1.25;
/// ... over this many steps in a row, ...
const DRIFT_STEPS: u32 = 3;
/// ... and what it saves in the steps to come must be worth this many steps: that is what moving weights costs.
const DRIFT_COST: f64 = 10.0;

/// A spare measures itself again after this long: it may have been throttled, or have recovered.
const MEASURE_AGAIN: Duration = Duration::from_secs(30);

/// A run that has to discard its work this often without a snapshot in between stops with a reason.
const MAX_FAULTS: u32 = 3;

/// Steps over which the speed is averaged.
const SPEED_STEPS: usize = 10;

/// What does not change during a run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub run: RunSpec,
    pub steps: u64,
    pub seed: u64,
    pub stages: Stages,
    /// Workers to wait for before the first plan.
    pub start_with: u32,
    pub learning_rate: LearningRate,
    /// Measure the held-out split after every this many steps, and after the last.
    pub validate_every: u64,
    pub validation_batches: u32,
    pub snapshot_every: u64,
    pub heartbeat: Duration,
    pub lease: Duration,
    /// A plan of which nothing has been heard for this long is given up.
    pub step_deadline: Duration,
    pub max_workers: u32,
    pub corpus: String,
    pub tokenizer: String,
    pub train_tokens: u64,
}

/// What the plan in force is doing.
#[derive(Debug, Clone)]
enum Activity {
    /// Stages load their weights; these are ready.
    Loading(BTreeSet<WorkerId>),
    Stepping(StepInFlight),
    /// Between two steps: paused, or waiting for a snapshot.
    Holding,
}

#[derive(Debug, Clone)]
struct InForce {
    plan: Plan,
    /// Everybody's pace when it was made.
    paces: BTreeMap<WorkerId, f64>,
    activity: Activity,
}

#[derive(Debug, Clone)]
pub struct Machine {
    settings: Settings,
    roster: Roster,
    epoch: u64,
    in_force: Option<InForce>,
    /// Optimizer steps the weights have seen.
    steps_done: u64,
    snapshot: Option<Manifest>,
    collecting: Option<Collecting>,
    /// A complete snapshot whose manifest is being written.
    committing: Option<Manifest>,
    paused: bool,
    stopping: bool,
    /// Why a new plan is to be made at the next boundary.
    replan: Option<String>,
    /// When something last came of the plan in force: a stage loaded, a report, a part of a snapshot.
    progressed: Duration,
    /// The time of the event in hand.
    now: Duration,
    /// Steps in a row after which another plan would have been clearly better.
    drifting: u32,
    /// The first plan has been made: `start_with` no longer matters.
    started: bool,
    over: Option<DrainReason>,
    faults: u32,
    curve: Vec<CurvePoint>,
    /// The newest point, held back until the held-out split has been measured.
    pending_point: Option<CurvePoint>,
    validation_loss: Option<f64>,
    step_seconds: Vec<f64>,
    efficiency: Option<f64>,
    balance: Option<f64>,
    refusals: BTreeMap<String, u64>,
    phase: Phase,
    reason: String,
}

impl Machine {
    /// A new run, or with a manifest one that goes on from there.
    pub fn new(mut settings: Settings, resume: Option<Manifest>) -> Self {
        if let Some(manifest) = &resume {
            settings.run.micro_batches = manifest.micro_batches;
        }
        let steps_done = resume.as_ref().map_or(0, |m| m.steps_done);
        let epoch = resume.as_ref().map_or(0, |m| m.epoch);
        let mut machine = Self {
            settings,
            roster: Roster::default(),
            epoch,
            in_force: None,
            steps_done,
            snapshot: resume,
            collecting: None,
            committing: None,
            paused: false,
            stopping: false,
            replan: None,
            progressed: Duration::ZERO,
            now: Duration::ZERO,
            drifting: 0,
            started: false,
            over: None,
            faults: 0,
            curve: vec![],
            pending_point: None,
            validation_loss: None,
            step_seconds: vec![],
            efficiency: None,
            balance: None,
            refusals: BTreeMap::new(),
            phase: Phase::Waiting,
            reason: String::new(),
        };
        machine.reason = machine.waiting_reason();
        machine
    }

    /// Take an event in, give the actions out that follow from it.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.now = now;
        match event {
            Event::Joined { worker, hello, token } => self.joined(now, worker, hello, token, &mut out),
            Event::Said { worker, message } => {
                self.heard(now, worker);
                if self.roster.contains(worker) {
                    self.said(now, worker, message, &mut out);
                }
            }
            Event::Heard { worker } => self.heard(now, worker),
            Event::Measured { worker, rtt } => {
                if let Some(w) = self.roster.get_mut(worker) {
                    w.rtt = Some(rtt);
                }
            }
            Event::Refused { worker, refusal } => self.refused(worker, &refusal, &mut out),
            Event::Gone { worker, why } => self.gone(worker, &why, &mut out),
            Event::Committed { steps_done, state } => self.committed(now, steps_done, state, &mut out),
            Event::CommitFailed { steps_done, why } => self.commit_failed(now, steps_done, why, &mut out),
            Event::Asked(command) => self.asked(now, command, &mut out),
            // Of block mode.
            Event::DeltaChecked { .. }
            | Event::Averaged { .. }
            | Event::AverageFailed { .. }
            | Event::Evaluated { .. } => {}
            Event::Tick => {
                for worker in self.roster.silent(now, self.settings.lease) {
                    let seconds = self.settings.lease.as_secs() as u32;
                    self.close(worker, Refusal::LeaseEnded { seconds }, &mut out);
                }
                self.measure_spares(now, &mut out);
                self.give_up_what_hangs(&mut out);
            }
        }
        out
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The learning curve so far.
    pub fn curve(&self) -> &[CurvePoint] {
        &self.curve
    }

    pub fn snapshot(&self) -> Option<&Manifest> {
        self.snapshot.as_ref()
    }

    /// M, micro-batches in a step; 0 before the first plan of a run that has it chosen.
    pub fn micro_batches(&self) -> u32 {
        self.settings.run.micro_batches
    }

    pub fn view(&self, now: Duration) -> RunView {
        let s = &self.settings;
        let seconds = self.step_seconds.iter().sum::<f64>() / self.step_seconds.len().max(1) as f64;
        RunView {
            run: s.run.clone(),
            phase: self.phase,
            reason: self.reason.clone(),
            epoch: self.epoch,
            step: self.steps_done,
            steps: s.steps,
            workers_wanted: self.workers_wanted(),
            parameters: plan::parameters(&s.run.model),
            corpus: s.corpus.clone(),
            tokenizer: s.tokenizer.clone(),
            train_tokens: s.train_tokens,
            train_loss: self.pending_point.as_ref().or(self.curve.last()).map(|p| p.train_loss),
            validation_loss: self.validation_loss,
            tokens_per_second: if self.phase == Phase::Training {
                self.tokens_per_second(seconds)
            } else {
                0.0
            },
            efficiency: self.efficiency,
            balance: self.balance,
            predicted_step_seconds: self.in_force.as_ref().map(|f| f.plan.predicted.step_seconds),
            snapshot_step: self.snapshot.as_ref().map(|m| m.steps_done),
            snapshot_state: self.snapshot.as_ref().map(|m| m.state.clone()),
            rounds: None,
            refusals: self.refusals.clone(),
            workers: self.roster.views(now, |id| self.holding(id)),
        }
    }

    fn holding(&self, id: WorkerId) -> (WorkerState, Vec<protocol::spec::Hop>, u64) {
        let Some(in_force) = &self.in_force else { return (WorkerState::Spare, vec![], 0) };
        let Some(stage) = in_force.plan.stage(id) else { return (WorkerState::Spare, vec![], 0) };
        let state = match &in_force.activity {
            Activity::Loading(ready) if !ready.contains(&id) => WorkerState::Loading,
            _ => WorkerState::Training,
        };
        (state, stage.hops.clone(), stage.memory_bytes)
    }

    fn tokens_per_second(&self, seconds: f64) -> f64 {
        let run = &self.settings.run;
        let tokens = f64::from(run.sequences) * f64::from(run.context) * f64::from(run.micro_batches);
        if seconds > 0.0 { tokens / seconds } else { 0.0 }
    }

    fn workers_wanted(&self) -> u32 {
        let stages = match self.settings.stages {
            Stages::Auto => 1,
            Stages::Exactly(n) => n,
        };
        if self.started { stages } else { stages.max(self.settings.start_with) }
    }

    // --- workers come and go ---------------------------------------------------------------------

    fn joined(
        &mut self,
        now: Duration,
        worker: WorkerId,
        hello: Hello,
        token: String,
        out: &mut Vec<Action>,
    ) {
        let over = self.over.is_some();
        let arrival = (worker, hello, token);
        if let Err(refusal) = door::admit(&mut self.roster, &self.settings, over, now, arrival, out) {
            self.refused(Some(worker), &refusal, out);
            out.push(Action::Close { worker, refusal });
            return;
        }
        self.refresh_waiting(out);
    }

    fn heard(&mut self, now: Duration, worker: WorkerId) {
        if let Some(w) = self.roster.get_mut(worker) {
            w.last_heard = now;
        }
    }

    fn gone(&mut self, worker: WorkerId, why: &str, out: &mut Vec<Action>) {
        if !self.roster.leave(worker) {
            return;
        }
        out.push(Action::Record(Record::WorkerLeft { worker, why: why.into() }));
        let held = self.in_force.as_ref().is_some_and(|f| f.plan.stage(worker).is_some());
        if held {
            self.discard_plan(format!("{worker} left: {why}"), out);
        }
        self.try_plan(out);
    }

    /// Count and record a refusal.
    fn refused(&mut self, worker: Option<WorkerId>, refusal: &Refusal, out: &mut Vec<Action>) {
        self.count_refusal(refusal.name());
        let (refusal, words) = (refusal.name().to_string(), refusal.to_string());
        out.push(Action::Record(Record::WorkerRefused { worker, refusal, words }));
    }

    fn count_refusal(&mut self, name: &str) {
        *self.refusals.entry(name.into()).or_default() += 1;
    }

    /// Ask spares to measure themselves again, once in a while.
    fn measure_spares(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.phase != Phase::Training {
            return;
        }
        for worker in self.roster.to_measure_again(now, MEASURE_AGAIN) {
            if self.in_force.as_ref().is_some_and(|f| f.plan.stage(worker).is_some()) {
                continue;
            }
            if let Some(w) = self.roster.get_mut(worker) {
                w.benchmarked = now;
            }
            out.push(Action::Send { worker, message: Message::Benchmark });
        }
    }

    /// A message that got lost, or a stage that hangs while its heart beats, must not stop a run for ever.
    fn give_up_what_hangs(&mut self, out: &mut Vec<Action>) {
        let waits = self.in_force.is_some() && self.phase != Phase::Paused;
        if waits && self.now.saturating_sub(self.progressed) > self.settings.step_deadline {
            let seconds = self.settings.step_deadline.as_secs();
            self.take_back(format!("nothing came of the plan for {seconds} s"), out);
        }
    }

    /// Turn a worker away and go on without it.
    fn close(&mut self, worker: WorkerId, refusal: Refusal, out: &mut Vec<Action>) {
        let words = refusal.to_string();
        self.refused(Some(worker), &refusal, out);
        out.push(Action::Close { worker, refusal });
        self.gone(worker, &words, out);
    }

    // --- what workers say ------------------------------------------------------------------------

    fn said(&mut self, now: Duration, worker: WorkerId, message: Message, out: &mut Vec<Action>) {
        let name = message.name();
        match message {
            Message::Heartbeat | Message::Pausing => {}
            Message::Profile(profile) => self.profiled(now, worker, profile, out),
            Message::Ready { epoch } => self.ready(now, worker, epoch, out),
            Message::StepReport(report) => self.step_report(now, worker, report, out),
            Message::ValidationReport(report) => self.validation_report(now, worker, report, out),
            Message::SnapshotReady(part) => self.snapshot_part(worker, part, out),
            Message::Leaving { reason } => self.gone(worker, &reason, out),
            Message::Fault(fault) => self.fault(worker, fault, out),
            _ => {
                let detail = "it is not for a worker to say at this point".into();
                self.close(worker, Refusal::Unexpected { message: name.into(), detail }, out);
            }
        }
    }

    fn profiled(&mut self, now: Duration, worker: WorkerId, profile: Profile, out: &mut Vec<Action>) {
        if let Err(refusal) = check_profile(&profile) {
            self.close(worker, refusal, out);
            return;
        }
        out.push(Action::Record(Record::WorkerProfiled {
            worker,
            backend: profile.backend,
            device: profile.device.clone(),
            layer_seconds: profile.layer.total(),
            link: profile.link,
        }));
        if let Some(w) = self.roster.get_mut(worker) {
            w.profile = Some(profile);
            w.pace = 1.0;
        }
        match &self.in_force {
            None => self.try_plan(out),
            Some(in_force) => {
                if self.better_by(REPLAN_GAIN).is_some() {
                    let holding = matches!(in_force.activity, Activity::Holding);
                    self.replan = Some(format!("{worker} can take part of the work"));
                    if holding {
                        self.boundary(now, out);
                    }
                }
            }
        }
    }

    /// Seconds a step takes now and would take with the best plan, if that is better by this factor.
    fn better_by(&self, gain: f64) -> Option<(f64, f64)> {
        let in_force = self.in_force.as_ref()?;
        let measured = self.roster.measured();
        let now = in_force.plan.replay(&self.settings.run, &measured)?.step_seconds;
        let best = plan::make(&self.settings.run, self.settings.stages, &measured).ok()?;
        (best.predicted.step_seconds * gain < now).then_some((now, best.predicted.step_seconds))
    }

    /// After a step: has somebody become so slow or fast that the layers are better dealt anew?
    fn look_for_drift(&mut self) {
        let Some(in_force) = &self.in_force else { return };
        let drifted = self.roster.paces().iter().any(|(worker, pace)| {
            let before = in_force.paces.get(worker).copied().unwrap_or(1.0);
            (pace / before).max(before / pace) > DRIFT
        });
        let left = self.settings.steps.saturating_sub(self.steps_done) as f64;
        let worth = drifted
            && self.better_by(DRIFT_GAIN).is_some_and(|(now, best)| left * (now - best) > DRIFT_COST * now);
        self.drifting = if worth { self.drifting + 1 } else { 0 };
        if self.drifting >= DRIFT_STEPS {
            self.drifting = 0;
            self.replan = Some("the devices' speeds have changed".into());
        }
    }

    fn ready(&mut self, now: Duration, worker: WorkerId, epoch: u64, out: &mut Vec<Action>) {
        if epoch != self.epoch {
            return; // of a plan that has ended meanwhile
        }
        let Some(InForce { plan, activity: Activity::Loading(ready), .. }) = &mut self.in_force else {
            return;
        };
        if plan.stage(worker).is_none() {
            return;
        }
        ready.insert(worker);
        self.progressed = self.now;
        if ready.len() == plan.stages.len() {
            self.boundary(now, out);
        }
    }

    fn step_report(&mut self, now: Duration, worker: WorkerId, report: StepReport, out: &mut Vec<Action>) {
        if report.epoch != self.epoch {
            return;
        }
        if !report.squared_norm.is_finite() || report.losses.iter().any(|l| !l.is_finite()) {
            self.not_finite(worker, "its loss or gradient norm", out);
            return;
        }
        let micro_batches = self.settings.run.micro_batches as usize;
        let Some(InForce { plan, activity: Activity::Stepping(step), .. }) = &mut self.in_force else {
            return;
        };
        let losses = if plan.last() == Some(worker) { micro_batches } else { 0 };
        match step.report(worker, report, losses) {
            Ok(()) => {
                self.progressed = self.now;
                self.advance(now, out);
            }
            Err(e) => {
                let refusal = Refusal::NotInPlan { message: "StepReport".into(), detail: e.to_string() };
                self.close(worker, refusal, out);
            }
        }
    }

    fn validation_report(
        &mut self,
        now: Duration,
        worker: WorkerId,
        report: ValidationReport,
        out: &mut Vec<Action>,
    ) {
        if report.epoch != self.epoch {
            return;
        }
        if !report.loss.is_finite() {
            self.not_finite(worker, "its validation loss", out);
            return;
        }
        let Some(InForce { plan, activity: Activity::Stepping(step), .. }) = &mut self.in_force else {
            return;
        };
        let checked = if plan.last() == Some(worker) {
            step.validated(&report).map_err(|e| e.to_string())
        } else {
            Err("this worker does not hold the head".into())
        };
        if let Err(detail) = checked {
            self.close(worker, Refusal::NotInPlan { message: "ValidationReport".into(), detail }, out);
            return;
        }
        self.progressed = self.now;
        if let Some(loss) = step.validation_loss() {
            let steps_done = step.step;
            self.validation_loss = Some(loss);
            out.push(Action::Record(Record::Validated { steps_done, loss }));
            if let Some(mut point) = self.pending_point.take() {
                point.validation_loss = Some(loss);
                self.publish(point, out);
            }
        }
        self.advance(now, out);
    }

    fn snapshot_part(&mut self, worker: WorkerId, part: SnapshotReady, out: &mut Vec<Action>) {
        if part.epoch != self.epoch {
            return;
        }
        let Some(in_force) = &self.in_force else { return };
        let Some(collecting) = &mut self.collecting else { return };
        if !collecting.part(worker, part.steps_done, part.blob) {
            return;
        }
        self.progressed = self.now;
        let run = &self.settings.run;
        if let Some(manifest) =
            collecting.complete(self.epoch, &run.model, run.micro_batches, &in_force.plan.stages)
        {
            self.collecting = None;
            self.committing = Some(manifest.clone());
            out.push(Action::Commit(manifest));
        }
    }

    fn committed(&mut self, now: Duration, steps_done: u64, state: String, out: &mut Vec<Action>) {
        let Some(manifest) = self.committing.take_if(|m| m.steps_done == steps_done) else { return };
        self.snapshot = Some(Manifest { state: state.clone(), ..manifest });
        self.faults = 0;
        self.progressed = self.now;
        out.push(Action::Record(Record::SnapshotCommitted { steps_done, state }));
        out.push(Action::Prune { accepted: steps_done });
        for worker in self.roster.ids() {
            out.push(Action::Send { worker, message: Message::SnapshotKept { steps_done } });
        }
        if matches!(self.in_force, Some(InForce { activity: Activity::Holding, .. })) {
            self.boundary(now, out);
        }
    }

    fn commit_failed(&mut self, now: Duration, steps_done: u64, why: String, out: &mut Vec<Action>) {
        if self.committing.take_if(|m| m.steps_done == steps_done).is_none() {
            return;
        }
        let words = format!("the weights of step {steps_done} could not be saved: {why}");
        out.push(Action::Record(Record::SnapshotFailed { steps_done, why }));
        if !matches!(self.in_force, Some(InForce { activity: Activity::Holding, .. })) {
            return; // the run goes on from the snapshot before, should it have to
        }
        if self.stopping || self.steps_done >= self.settings.steps {
            self.end(DrainReason::Stopped, words, out);
        } else {
            self.replan = None;
            self.boundary(now, out);
        }
    }

    fn fault(&mut self, worker: WorkerId, fault: Fault, out: &mut Vec<Action>) {
        use protocol::message::FaultKind::*;
        if fault.epoch != self.epoch {
            return;
        }
        match fault.kind {
            // Nobody can tell from here whose fault these are: take the step back.
            NotFinite => self.not_finite(worker, &fault.detail, out),
            BadTensor => {
                self.count_refusal("bad_tensor");
                self.take_back(format!("{worker} got a broken tensor: {}", fault.detail), out);
            }
            Device | Weights => {
                let refusal = Refusal::Unexpected { message: "Fault".into(), detail: fault.detail };
                self.close(worker, refusal, out);
            }
        }
    }

    fn not_finite(&mut self, worker: WorkerId, what: &str, out: &mut Vec<Action>) {
        self.count_refusal("not_finite");
        self.take_back(format!("{worker} met NaN or infinity: {what}"), out);
    }

    /// Discard the work since the last snapshot and try again, a few times.
    fn take_back(&mut self, why: String, out: &mut Vec<Action>) {
        self.faults += 1;
        self.discard_plan(why.clone(), out);
        if self.faults >= MAX_FAULTS {
            self.end(
                DrainReason::Stopped,
                format!("stopped after {MAX_FAULTS} faults; the last: {why}"),
                out,
            );
        } else {
            self.try_plan(out);
        }
    }

    // --- what the organizer asks -----------------------------------------------------------------

    fn asked(&mut self, now: Duration, command: Command, out: &mut Vec<Action>) {
        if self.over.is_some() {
            return;
        }
        match command {
            Command::Start => {
                self.paused = false;
                match &self.in_force {
                    None => self.try_plan(out),
                    Some(InForce { activity: Activity::Holding, .. }) => self.boundary(now, out),
                    Some(_) => {}
                }
            }
            Command::Pause => {
                self.paused = true;
                self.refresh_waiting(out);
                self.say_when_held("pausing after this step", out);
            }
            Command::Stop => {
                self.stopping = true;
                match &self.in_force {
                    None => self.end(DrainReason::Stopped, "stopped by the organizer".into(), out),
                    Some(InForce { activity: Activity::Stepping(_), .. }) => {
                        self.say_when_held("stopping after this step", out);
                    }
                    Some(_) => self.boundary(now, out),
                }
            }
            Command::Remove(worker) => {
                if self.roster.contains(worker) {
                    self.close(worker, Refusal::Removed, out);
                }
            }
        }
    }

    fn say_when_held(&mut self, words: &str, out: &mut Vec<Action>) {
        if self.phase == Phase::Training || self.phase == Phase::Loading {
            let phase = self.phase;
            self.enter(phase, words.into(), out);
        }
    }

    // --- plans -----------------------------------------------------------------------------------

    fn waiting_reason(&self) -> String {
        if self.paused {
            return "paused by the organizer".into();
        }
        let want = self.workers_wanted();
        let have = self.roster.measured().len() as u32;
        let measuring = self.roster.len() as u32 - have;
        match (have, measuring) {
            (0, 0) => format!("waiting for {want} worker{}", if want == 1 { "" } else { "s" }),
            (_, 0) => format!("{have} of {want} workers are ready"),
            _ => format!("{have} of {want} workers are ready, {measuring} measuring"),
        }
    }

    fn refresh_waiting(&mut self, out: &mut Vec<Action>) {
        if self.in_force.is_none() && self.over.is_none() {
            let phase = if self.paused { Phase::Paused } else { Phase::Waiting };
            let reason = self.waiting_reason();
            self.enter(phase, reason, out);
        }
    }

    /// Make a plan if there is none and the workers suffice.
    fn try_plan(&mut self, out: &mut Vec<Action>) {
        if self.in_force.is_some() || self.over.is_some() {
            return;
        }
        let measured = self.roster.measured();
        if self.paused || (measured.len() as u32) < self.workers_wanted() {
            self.refresh_waiting(out);
            return;
        }
        match plan::make(&self.settings.run, self.settings.stages, &measured) {
            Ok(plan) => self.put_in_force(plan, "the workers suffice".into(), out),
            Err(e) => self.enter(Phase::Waiting, e.to_string(), out),
        }
    }

    fn put_in_force(&mut self, plan: Plan, why: String, out: &mut Vec<Action>) {
        let former = self.in_force.take();
        if former.is_none() {
            self.roll_back();
        }
        self.epoch += 1;
        self.started = true;
        self.replan = None;
        self.drifting = 0;
        self.progressed = self.now;
        self.collecting = None;
        self.settings.run.micro_batches = plan.micro_batches;
        let relay = Relay::new(
            self.epoch,
            plan.holders.clone(),
            self.settings.run.clone(),
            self.settings.validation_batches,
        );
        out.push(Action::Route(relay));
        // Workers whose stage is not renewed drop it.
        for worker in former.iter().flat_map(|f| f.plan.workers()) {
            if plan.stage(worker).is_none() && self.roster.contains(worker) {
                out.push(Action::Send { worker, message: Message::Revoke { epoch: self.epoch - 1 } });
            }
        }
        for stage in &plan.stages {
            let weights = match &self.snapshot {
                None => WeightSource::Seed(self.settings.seed),
                Some(manifest) => WeightSource::Snapshot(manifest.blobs_for(&stage.hops)),
            };
            let assignment = Assignment {
                epoch: self.epoch,
                hops: stage.hops.clone(),
                hop_count: plan.holders.len() as u32,
                first_step: self.steps_done,
                micro_batches: plan.micro_batches,
                window: stage.window,
                weights,
            };
            out.push(Action::Send { worker: stage.worker, message: Message::Assign(assignment) });
        }
        out.push(Action::Record(Record::PlanMade {
            epoch: self.epoch,
            first_step: self.steps_done,
            stages: plan.stages.iter().map(|s| (s.worker, s.hops.clone())).collect(),
            micro_batches: plan.micro_batches,
            why,
            predicted_step_seconds: plan.predicted.step_seconds,
            predicted_efficiency: plan.predicted.efficiency(),
        }));
        let stages = plan.stages.len();
        let reason =
            format!("{stages} worker{} load{} the model", plural(stages), if stages == 1 { "s" } else { "" });
        let paces = self.roster.paces();
        self.in_force = Some(InForce { plan, paces, activity: Activity::Loading(BTreeSet::new()) });
        self.enter(Phase::Loading, reason, out);
    }

    /// End the plan and go back to the last snapshot. Its survivors are free.
    fn discard_plan(&mut self, why: String, out: &mut Vec<Action>) {
        let Some(former) = self.in_force.take() else { return };
        out.push(Action::Record(Record::StepDiscarded { epoch: self.epoch, step: self.steps_done, why }));
        out.push(Action::Route(Relay::closed(self.epoch + 1)));
        for worker in former.plan.workers() {
            if self.roster.contains(worker) {
                out.push(Action::Send { worker, message: Message::Revoke { epoch: self.epoch } });
            }
        }
        // Frames and reports of the discarded plan carry its number, which is never used again.
        self.epoch += 1;
        self.collecting = None;
    }

    /// Back to the last snapshot that counts, or to the beginning.
    fn roll_back(&mut self) {
        self.steps_done = self.snapshot.as_ref().map_or(0, |m| m.steps_done);
        self.curve.retain(|p| p.step <= self.steps_done);
        // A point whose validation was still due is due again only if the weights are back at it.
        self.pending_point = self.pending_point.take().filter(|p| p.step == self.steps_done);
        // A snapshot still being written is of work that is now done again.
        self.committing = None;
    }

    // --- steps -----------------------------------------------------------------------------------

    /// Is everything up to here in a snapshot (or is there nothing to save)?
    fn saved(&self) -> bool {
        self.snapshot.as_ref().map_or(0, |m| m.steps_done) == self.steps_done
    }

    /// Between two steps: end, change the plan, hold, or open the next step.
    fn boundary(&mut self, now: Duration, out: &mut Vec<Action>) {
        let finished = self.steps_done >= self.settings.steps;
        if finished && self.pending_point.is_some() {
            // The last weights are measured before the run is over.
            self.open_step(now, out);
        } else if finished || self.stopping {
            if self.saved() {
                let (reason, words) = if finished {
                    (DrainReason::Finished, "all steps are done".to_string())
                } else {
                    (DrainReason::Stopped, "stopped by the organizer".to_string())
                };
                self.end(reason, words, out);
            } else if finished || self.collecting.is_some() || self.committing.is_some() {
                self.hold("saving the last weights", out);
            } else {
                // Stopped at a boundary whose weights nobody was asked for: one more step asks.
                self.open_step(now, out);
            }
        } else if let Some(why) = self.replan.clone() {
            if self.saved() {
                self.replan = None;
                // Whoever made it worth while may have left meanwhile.
                let plan = self.better_by(REPLAN_GAIN).and_then(|_| {
                    plan::make(&self.settings.run, self.settings.stages, &self.roster.measured()).ok()
                });
                match plan {
                    Some(plan) => self.put_in_force(plan, why, out),
                    None => self.boundary(now, out),
                }
            } else if self.collecting.is_some() || self.committing.is_some() {
                self.hold("saving the weights before the model is split anew", out);
            } else {
                // Decided too late for a snapshot at this boundary; the next step takes one.
                self.open_step(now, out);
            }
        } else if self.paused {
            self.hold("paused by the organizer", out);
            self.enter(Phase::Paused, "paused by the organizer".into(), out);
        } else {
            self.open_step(now, out);
        }
    }

    fn hold(&mut self, words: &str, out: &mut Vec<Action>) {
        if let Some(in_force) = &mut self.in_force {
            in_force.activity = Activity::Holding;
        }
        let phase = self.phase;
        self.enter(phase, words.into(), out);
    }

    fn open_step(&mut self, now: Duration, out: &mut Vec<Action>) {
        self.progressed = self.now;
        let step = self.steps_done;
        let validation = if self.pending_point.is_some() { self.settings.validation_batches } else { 0 };
        let training = step < self.settings.steps;
        let micro_batches = if training { self.settings.run.micro_batches } else { 0 };
        let Some(in_force) = &mut self.in_force else { return };
        let (Some(first), Some(last)) = (in_force.plan.first(), in_force.plan.last()) else { return };
        let last_hop = in_force.plan.holders.len() as u32 - 1;
        in_force.activity = Activity::Stepping(if training {
            StepInFlight::train(step, now, &in_force.plan.workers(), validation)
        } else {
            StepInFlight::validate_only(step, now, validation)
        });
        out.push(Action::OpenStep { step });
        let passes = (0..validation)
            .map(|batch| Pass::Validate { batch })
            .chain((0..micro_batches).map(|micro_batch| Pass::Train { micro_batch }));
        for pass in passes {
            let to = |hop| Address { epoch: self.epoch, step, pass, hop };
            out.push(Action::SendBatch { worker: last, to: to(last_hop), half: Half::Targets });
            out.push(Action::SendBatch { worker: first, to: to(0), half: Half::Inputs });
        }
        let stages = in_force.plan.stages.len();
        self.enter(Phase::Training, format!("training on {stages} worker{}", plural(stages)), out);
    }

    /// Close the step if all its reports are in.
    fn advance(&mut self, now: Duration, out: &mut Vec<Action>) {
        let Some(InForce { plan, activity: Activity::Stepping(step), .. }) = &self.in_force else { return };
        let Some(outcome) = step.outcome() else { return };
        let Some(loss) = outcome.train_loss else {
            self.boundary(now, out); // it was the last validation
            return;
        };
        let seconds = now.saturating_sub(step.opened).as_secs_f64();
        // Validation counts as forward time: a step with it says nothing of the pace.
        let validated = outcome.validation_loss.is_some();
        let micro_batches = self.settings.run.micro_batches;
        let measured = self.roster.measured();
        let expected: Vec<(WorkerId, f64)> = plan
            .stages
            .iter()
            .filter_map(|s| Some((s, measured.iter().find(|m| m.worker == s.worker)?)))
            .map(|(s, m)| (s.worker, f64::from(micro_batches) * m.seconds(&s.hops)))
            .collect();
        let (step, workers) = (step.step, plan.workers());
        if !validated {
            for (worker, timings, _) in &outcome.timings {
                if let Some((_, expected)) = expected.iter().find(|(w, _)| w == worker) {
                    self.roster.timed(*worker, *timings, *expected);
                }
            }
        }
        let (efficiency, balance) = (outcome.efficiency(seconds), outcome.balance());
        self.efficiency = Some(efficiency);
        self.balance = Some(balance);
        let learning_rate = self.settings.learning_rate.at(step);
        self.steps_done = step + 1;
        let done = self.steps_done;
        let due = |every: u64| every > 0 && done.is_multiple_of(every);
        let last = self.steps_done >= self.settings.steps;
        if !validated && self.replan.is_none() {
            self.look_for_drift();
        }
        let replan = self.replan.is_some();
        let wanted = due(self.settings.snapshot_every) || last || self.stopping || self.paused || replan;
        // One snapshot at a time; but what the run waits for replaces one that is still on its way.
        let must = last || self.stopping || replan;
        // One that never became whole does not count as on its way.
        let collecting = self
            .collecting
            .as_ref()
            .is_some_and(|c| now.saturating_sub(c.since) <= self.settings.step_deadline);
        let snapshot = wanted && (must || (!collecting && self.committing.is_none()));
        if snapshot {
            self.collecting = Some(Collecting::new(self.steps_done, now, workers.iter().copied()));
        }
        let apply = Apply {
            epoch: self.epoch,
            step,
            clip_scale: clip_scale(outcome.gradient_norm, self.settings.run.optimizer.clip_norm),
            learning_rate,
            snapshot,
        };
        for worker in &workers {
            out.push(Action::Send { worker: *worker, message: Message::Apply(apply.clone()) });
        }

        for (worker, timings, vitals) in &outcome.timings {
            if let Some(w) = self.roster.get_mut(*worker) {
                w.timings = *timings;
                w.vitals = *vitals;
                w.accepted_micro_batches += u64::from(micro_batches);
            }
        }
        self.step_seconds.push(seconds);
        if self.step_seconds.len() > SPEED_STEPS {
            self.step_seconds.remove(0);
        }
        let epoch = self.epoch;
        let gradient_norm = outcome.gradient_norm;
        out.push(Action::Record(Record::StepDone {
            epoch,
            step,
            loss,
            gradient_norm,
            learning_rate,
            seconds,
            efficiency,
            balance,
        }));
        out.push(Action::Record(Record::StepTimed { epoch, step, workers: outcome.timings }));
        out.push(Action::Record(Record::WorkAccepted { epoch, step, workers, micro_batches }));
        let point = CurvePoint {
            step: self.steps_done,
            train_loss: loss,
            validation_loss: None,
            learning_rate,
            tokens_per_second: self.tokens_per_second(seconds),
            evaluation: None,
            participation: None,
        };
        if self.settings.validation_batches > 0 && (due(self.settings.validate_every) || last) {
            self.pending_point = Some(point);
        } else {
            self.publish(point, out);
        }
        self.boundary(now, out);
    }

    fn publish(&mut self, point: CurvePoint, out: &mut Vec<Action>) {
        self.curve.push(point.clone());
        out.push(Action::Point(point));
    }

    // --- the end ---------------------------------------------------------------------------------

    fn end(&mut self, reason: DrainReason, words: String, out: &mut Vec<Action>) {
        if let Some(point) = self.pending_point.take() {
            self.publish(point, out);
        }
        self.in_force = None;
        self.over = Some(reason);
        out.push(Action::Route(Relay::closed(self.epoch + 1)));
        for worker in self.roster.ids() {
            out.push(Action::Send { worker, message: Message::Drain { reason } });
        }
        let phase = match reason {
            DrainReason::Finished => Phase::Finished,
            DrainReason::Stopped => Phase::Stopped,
        };
        self.enter(phase, words, out);
    }

    fn enter(&mut self, phase: Phase, reason: String, out: &mut Vec<Action>) {
        if self.phase != phase {
            out.push(Action::Record(Record::Phase { phase, reason: reason.clone() }));
        }
        self.phase = phase;
        self.reason = reason;
    }
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}
