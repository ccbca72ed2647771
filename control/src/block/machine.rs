//! Block mode: events in, actions out.
//!
//! A run waits for workers, gives each a block, opens a round, and closes it when all deltas are in or its time is
//! up. What was accepted is averaged; then the next round opens. Workers come and go at any time: who comes takes part
//! from the next round on, who goes is missed in this one.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use protocol::{
    limits::{SENTENCE, shorten},
    message::{
        DeltaReady, DrainReason, Evaluate, Evaluated, Fault, FaultKind, Judged, Message, Profile, Round,
    },
    refusal::Refusal,
    view::{BlockView, CurvePoint, Phase, ReplicaView, RoundsView, RunView, WorkerState},
};

use super::{
    DeltaRefusal, Published, RoundManifest,
    deadline::{DeadlinePolicy, Deadlines},
    evaluation::{Evaluation, Evaluator},
    flight::{Accepted, Flight, Progress, Replica},
    keeper::Averaged,
    local_steps,
    manifest::{Totals, Work},
    placement::{Candidate, place},
    seeds,
};
use crate::run::{
    door,
    event::{Action, Command, Event, Record, Traffic, Windows, WorkerId},
    machine::Settings,
    roster::{Roster, check_profile},
};

/// Weight of the newest round in what is expected of a worker.
const NEWEST: f64 = 0.5;
/// A worker that was too late is expected to take this many times as long the next time.
const MISSED: f64 = 1.5;
/// Self-benchmarks see neither the noise nor the way of the bytes: the first round may take so many times as long.
const UNKNOWN: f64 = 2.0;
/// A worker that fails this many rounds in a row is turned away.
const MOST_FAULTS: u32 = 3;

/// A worker of which nothing came for so many rounds in a row is not waited for.
const MUTE: u32 = 3;

/// What block mode needs beside [`Settings`].
#[derive(Debug, Clone, PartialEq)]
pub struct RoundSettings {
    /// H.
    pub local_steps: u32,
    /// Rounds of the whole run.
    pub rounds: u64,
    pub deadline: DeadlinePolicy,
    /// Begin every round with empty moments.
    pub fresh_moments: bool,
    pub evaluator: Evaluator,
    /// K, draws of the scores with several.
    pub draws: u32,
    /// Ends of each block's own range of sigma.
    pub ranges: Vec<(f64, f64)>,
    pub layers_per_block: u32,
    /// Bytes that a replica takes.
    pub replica_bytes: u64,
    /// Numbers in the whole model.
    pub parameters: u64,
    /// For people.
    pub aggregator: String,
}

/// What is remembered of a worker from round to round.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The block it has AdamW's moments for.
    holds: Option<u32>,
    rounds_held: u64,
    /// The round the moments go back to; None where a round in between did not count.
    moments_since: Option<u64>,
    /// Seconds from the opening of a round to its delta.
    observed: Option<f64>,
    /// The last round it had a part in, and when that opened.
    last: Option<(u64, Duration)>,
    faults: u32,
    /// Rounds in a row that ended without its delta.
    missed: u32,
    view: ReplicaView,
}

#[derive(Debug, Clone)]
pub struct Machine {
    settings: Settings,
    rounds: RoundSettings,
    roster: Roster,
    known: BTreeMap<WorkerId, Known>,
    published: Published,
    updates: Vec<u64>,
    totals: Totals,
    local: Vec<Option<f64>>,
    deadlines: Deadlines,
    flight: Option<Flight>,
    /// The round has closed and its deltas are being averaged.
    averaging: bool,
    evaluation: Option<Evaluation>,
    evaluated: Option<(u64, protocol::evaluation::Scores)>,
    /// Points held back until the first of them has been measured.
    points: VecDeque<CurvePoint>,
    curve: Vec<CurvePoint>,
    participation: Option<f64>,
    participations: (f64, u64),
    round_seconds: Option<f64>,
    tokens_per_second: f64,
    paused: bool,
    stopping: bool,
    started: bool,
    over: Option<DrainReason>,
    refusals: BTreeMap<String, u64>,
    phase: Phase,
    reason: String,
    now: Duration,
}

impl Machine {
    /// A run from published weights: the first ones, or with a manifest those it names.
    pub fn new(
        settings: Settings,
        rounds: RoundSettings,
        published: Published,
        resume: Option<RoundManifest>,
    ) -> Self {
        let blocks = published.blocks.len();
        // A run that has begun goes on with whoever is there.
        let started = published.round > 0;
        let (updates, totals) = resume
            .map_or((vec![0; blocks], Totals::default()), |manifest| (manifest.updates, manifest.totals));
        let mut machine = Self {
            deadlines: Deadlines::new(rounds.deadline),
            settings,
            rounds,
            roster: Roster::default(),
            known: BTreeMap::new(),
            published,
            updates,
            totals,
            local: vec![None; blocks],
            flight: None,
            averaging: false,
            evaluation: None,
            evaluated: None,
            points: VecDeque::new(),
            curve: vec![],
            participation: None,
            participations: (0.0, 0),
            round_seconds: None,
            tokens_per_second: 0.0,
            paused: false,
            stopping: false,
            started,
            over: None,
            refusals: BTreeMap::new(),
            phase: Phase::Waiting,
            reason: String::new(),
            now: Duration::ZERO,
        };
        machine.reason = machine.waiting_reason();
        machine
    }

    /// Take an event in, give the actions out that follow from it.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.now = now;
        match event {
            Event::Joined { worker, hello, token } => {
                let (over, arrival) = (self.over.is_some(), (worker, hello, token));
                match door::admit(&mut self.roster, &self.settings, over, now, arrival, &mut out) {
                    Ok(()) => self.refresh_waiting(&mut out),
                    Err(refusal) => {
                        self.refused(Some(worker), &refusal, &mut out);
                        out.push(Action::Close { worker, refusal });
                    }
                }
            }
            Event::Said { worker, message } => {
                self.heard(worker);
                if self.roster.contains(worker) {
                    self.said(worker, message, &mut out);
                }
            }
            Event::Heard { worker } => self.heard(worker),
            Event::Measured { worker, rtt } => {
                if let Some(w) = self.roster.get_mut(worker) {
                    w.rtt = Some(rtt);
                }
            }
            Event::Refused { worker, refusal } => self.refused(worker, &refusal, &mut out),
            Event::Gone { worker, why } => self.gone(worker, &why, &mut out),
            Event::DeltaChecked { worker, round, outcome, traffic } => {
                self.checked(worker, round, outcome, traffic, &mut out);
            }
            Event::Averaged { published, averaged } => self.averaged(published, averaged, &mut out),
            Event::AverageFailed { round, why } => {
                let words = format!("the weights after round {round} could not be kept: {why}");
                self.end(DrainReason::Stopped, words, &mut out);
            }
            Event::Evaluated { round, batch, outcome } => match outcome {
                Ok(scores) => self.scored(round, batch, scores, &mut out),
                Err(why) => {
                    let words = format!("the weights of round {round} could not be measured: {why}");
                    self.end(DrainReason::Stopped, words, &mut out);
                }
            },
            // Of pipeline mode.
            Event::Committed { .. } | Event::CommitFailed { .. } => {}
            Event::Asked(command) => self.asked(command, &mut out),
            Event::Tick => {
                for worker in self.roster.silent(now, self.settings.lease) {
                    let seconds = self.settings.lease.as_secs() as u32;
                    self.close(worker, Refusal::LeaseEnded { seconds }, &mut out);
                }
            }
        }
        self.advance(&mut out);
        out
    }

    /// When to be woken by a tick, if nothing happens before.
    pub fn wake_at(&self) -> Option<Duration> {
        // While a delta is being looked at, the word of it wakes the machine: a deadline that has passed would do so
        // without end.
        let flight = self.flight.as_ref().filter(|flight| !self.averaging && !flight.is_checking())?;
        let look = self.deadlines.next_look(flight.elapsed(self.now), flight.deadline);
        Some(flight.opened + Duration::from_secs_f64(look))
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The learning curve so far.
    pub fn curve(&self) -> &[CurvePoint] {
        &self.curve
    }

    pub fn published(&self) -> &Published {
        &self.published
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Mean over the rounds done of accepted deltas over assigned replicas.
    pub fn mean_participation(&self) -> Option<f64> {
        let (sum, count) = self.participations;
        (count > 0).then(|| sum / count as f64)
    }

    pub fn view(&self, now: Duration) -> RunView {
        let s = &self.settings;
        let mut workers = self.roster.views(now, |worker| {
            let working = self.flight.as_ref().is_some_and(|flight| flight.replicas.contains_key(&worker));
            let state = if working { WorkerState::Training } else { WorkerState::Spare };
            (state, vec![], if working { self.rounds.replica_bytes } else { 0 })
        });
        for worker in &mut workers {
            let known = self.known.get(&WorkerId(worker.id));
            let block = self.replica(WorkerId(worker.id)).map(|replica| replica.block);
            worker.replica = Some(ReplicaView { block, ..known.map(|k| k.view).unwrap_or_default() });
        }
        RunView {
            run: s.run.clone(),
            phase: self.phase,
            reason: self.reason.clone(),
            epoch: self.published.round,
            step: self.steps_done(),
            steps: s.steps,
            workers_wanted: self.workers_wanted(),
            parameters: self.rounds.parameters,
            corpus: s.corpus.clone(),
            tokenizer: s.tokenizer.clone(),
            train_tokens: s.train_tokens,
            train_loss: self.points.back().or(self.curve.last()).map(|point| point.train_loss),
            validation_loss: self.evaluated.as_ref().map(|(_, scores)| scores.one_draw),
            tokens_per_second: if self.phase == Phase::Training { self.tokens_per_second } else { 0.0 },
            efficiency: None,
            balance: None,
            predicted_step_seconds: None,
            snapshot_step: Some(self.steps_done()),
            snapshot_state: Some(self.published.state().to_string()),
            rounds: Some(self.rounds_view()),
            refusals: self.refusals.clone(),
            workers,
        }
    }

    fn rounds_view(&self) -> RoundsView {
        let block = |(block, &(sigma_min, sigma_max)): (u32, &(f64, f64))| {
            let replicas: Vec<&Replica> = self
                .flight
                .iter()
                .flat_map(|flight| flight.replicas.values())
                .filter(|replica| replica.block == block)
                .collect();
            let arrived = replicas.iter().filter(|replica| replica.arrived.is_some()).count();
            BlockView {
                sigma_min,
                sigma_max,
                replicas: replicas.len() as u32,
                arrived: arrived as u32,
                updates: self.updates[block as usize],
                local_cross_entropy: self.local[block as usize],
            }
        };
        RoundsView {
            round: self.published.round,
            rounds: self.rounds.rounds,
            local_steps: self.rounds.local_steps,
            blocks: (0..).zip(&self.rounds.ranges).map(block).collect(),
            deadline_seconds: self.flight.as_ref().map_or(0.0, |flight| flight.deadline),
            participation: self.participation,
            mean_participation: self.mean_participation(),
            round_seconds: self.round_seconds,
            accepted: self.totals.accepted,
            refused: self.totals.refused,
            bytes_down: self.totals.bytes_down,
            bytes_up: self.totals.bytes_up,
            aggregator: self.rounds.aggregator.clone(),
            evaluation: self.evaluated.clone(),
        }
    }

    fn replica(&self, worker: WorkerId) -> Option<&Replica> {
        self.flight.as_ref()?.replicas.get(&worker)
    }

    /// Local steps of each block so far.
    fn steps_done(&self) -> u64 {
        local_steps::done(self.published.round, self.rounds.local_steps, self.settings.steps)
    }

    fn workers_wanted(&self) -> u32 {
        if self.started { 1 } else { self.settings.start_with.max(1) }
    }

    // --- workers come and go ---------------------------------------------------------------------

    fn heard(&mut self, worker: WorkerId) {
        let now = self.now;
        if let Some(w) = self.roster.get_mut(worker) {
            w.last_heard = now;
        }
    }

    fn gone(&mut self, worker: WorkerId, why: &str, out: &mut Vec<Action>) {
        if !self.roster.leave(worker) {
            return;
        }
        out.push(Action::Record(Record::WorkerLeft { worker, why: why.into() }));
        self.known.remove(&worker);
        if let Some(flight) = &mut self.flight {
            flight.give_up(worker);
        }
        if let Some(evaluation) = &mut self.evaluation {
            evaluation.take_back(worker);
        }
        self.refresh_waiting(out);
    }

    fn refused(&mut self, worker: Option<WorkerId>, refusal: &Refusal, out: &mut Vec<Action>) {
        self.count_refusal(refusal.name());
        let (refusal, words) = (refusal.name().to_string(), refusal.to_string());
        out.push(Action::Record(Record::WorkerRefused { worker, refusal, words }));
    }

    fn count_refusal(&mut self, name: &str) {
        *self.refusals.entry(name.into()).or_default() += 1;
    }

    /// Turn a worker away and go on without it.
    fn close(&mut self, worker: WorkerId, refusal: Refusal, out: &mut Vec<Action>) {
        let words = refusal.to_string();
        self.refused(Some(worker), &refusal, out);
        out.push(Action::Close { worker, refusal });
        self.gone(worker, &words, out);
    }

    // --- what workers say ------------------------------------------------------------------------

    fn said(&mut self, worker: WorkerId, message: Message, out: &mut Vec<Action>) {
        let name = message.name();
        match message {
            Message::Heartbeat | Message::Pausing => {}
            Message::Profile(profile) => self.profiled(worker, profile, out),
            Message::DeltaReady(ready) => self.delta_ready(worker, ready, out),
            Message::Evaluated(evaluated) => self.evaluated_by(worker, evaluated, out),
            Message::Leaving { reason } => self.gone(worker, &reason, out),
            Message::Fault(fault) => self.fault(worker, fault, out),
            _ => {
                let detail = "it is not for a worker to say at this point".into();
                self.close(worker, Refusal::Unexpected { message: name.into(), detail }, out);
            }
        }
    }

    fn profiled(&mut self, worker: WorkerId, profile: Profile, out: &mut Vec<Action>) {
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
        }
        self.known.entry(worker).or_default();
        self.refresh_waiting(out);
    }

    fn delta_ready(&mut self, worker: WorkerId, ready: DeltaReady, out: &mut Vec<Action>) {
        let (vitals, timings) = (ready.vitals, ready.timings);
        if let Some(w) = self.roster.get_mut(worker) {
            (w.vitals, w.timings) = (vitals, timings);
        }
        // How long it took says something even of a delta that is too late.
        if let Some(known) = self.known.get_mut(&worker)
            && let Some((round, opened)) = known.last
            && round == ready.round
        {
            let seconds = self.now.saturating_sub(opened).as_secs_f64();
            known.observed = Some(known.observed.map_or(seconds, |o| o + NEWEST * (seconds - o)));
        }
        let (round, block, blob) = (ready.round, ready.block, ready.blob);
        let taken = match &mut self.flight {
            Some(flight) if !self.averaging => flight.ready(self.now, worker, ready),
            _ if round <= self.published.round => Err(DeltaRefusal::Late { round }),
            _ => Err(DeltaRefusal::Stale { found: round, expected: self.published.round }),
        };
        match taken {
            Ok(()) => {
                let published = self.published.clone();
                out.push(Action::CheckDelta { worker, block, published, blob });
            }
            Err(refusal) => self.delta_refused(worker, round, &refusal, out),
        }
    }

    /// Say and note why a delta was not taken.
    fn delta_refused(&mut self, worker: WorkerId, round: u64, refusal: &DeltaRefusal, out: &mut Vec<Action>) {
        self.count_refusal(refusal.name());
        self.totals.refused += 1;
        if let Some(known) = self.known.get_mut(&worker) {
            known.view.refused += 1;
            known.moments_since = None;
        }
        let words = refusal.to_string();
        let told = Judged { round, refused: Some(shorten(&words, SENTENCE)) };
        if self.roster.contains(worker) {
            out.push(Action::Send { worker, message: Message::Judged(told) });
        }
        let refusal = refusal.name().to_string();
        out.push(Action::Record(Record::DeltaRefused { round, worker, refusal, words }));
    }

    fn checked(
        &mut self,
        worker: WorkerId,
        round: u64,
        outcome: Result<f64, DeltaRefusal>,
        traffic: Traffic,
        out: &mut Vec<Action>,
    ) {
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.round == round) else { return };
        let Some(replica) = flight.replicas.get_mut(&worker) else { return };
        let Progress::Checking(ready) = replica.progress.clone() else { return };
        match outcome {
            Ok(norm) => {
                let cross_entropy = f64::from(ready.cross_entropy);
                replica.progress =
                    Progress::Accepted(Accepted { blob: ready.blob, norm, cross_entropy, traffic });
                let (block, seconds) = (replica.block, replica.arrived.unwrap_or_default());
                if let Some(known) = self.known.get_mut(&worker) {
                    (known.faults, known.missed) = (0, 0);
                    known.rounds_held += 1;
                    known.view.accepted += 1;
                    known.view.bytes_down = traffic.down;
                    known.view.bytes_up = traffic.up;
                    known.view.round_seconds = Some(seconds);
                }
                out.push(Action::Record(Record::DeltaAccepted {
                    round,
                    block,
                    worker,
                    norm,
                    cross_entropy,
                    seconds,
                    compute_seconds: ready.timings.busy(),
                    traffic,
                }));
                if self.roster.contains(worker) {
                    let told = Judged { round, refused: None };
                    out.push(Action::Send { worker, message: Message::Judged(told) });
                }
            }
            Err(refusal) => {
                replica.progress = Progress::Out;
                self.delta_refused(worker, round, &refusal, out);
            }
        }
    }

    fn fault(&mut self, worker: WorkerId, fault: Fault, out: &mut Vec<Action>) {
        let known = self.known.entry(worker).or_default();
        known.faults += 1;
        (known.holds, known.moments_since) = (None, None);
        let faults = known.faults;
        if let Some(evaluation) = &mut self.evaluation {
            evaluation.take_back(worker);
        }
        if let Some(flight) = self.flight.as_mut().filter(|flight| flight.round == fault.epoch) {
            flight.give_up(worker);
        }
        let name = match fault.kind {
            FaultKind::NotFinite => "not_finite",
            FaultKind::BadTensor => "bad_tensor",
            FaultKind::Device => "device",
            FaultKind::Weights => "weights",
        };
        self.count_refusal(name);
        if matches!(fault.kind, FaultKind::Device) || faults >= MOST_FAULTS {
            let refusal = Refusal::Unexpected { message: "Fault".into(), detail: fault.detail };
            self.close(worker, refusal, out);
        } else {
            let (refusal, words) = (name.to_string(), fault.detail);
            out.push(Action::Record(Record::WorkerRefused { worker: Some(worker), refusal, words }));
        }
    }

    // --- what the organizer asks -----------------------------------------------------------------

    fn asked(&mut self, command: Command, out: &mut Vec<Action>) {
        if self.over.is_some() {
            return;
        }
        match command {
            Command::Start => {
                self.paused = false;
                self.refresh_waiting(out);
            }
            Command::Pause => {
                self.paused = true;
                self.refresh_waiting(out);
                self.say_when_closed("pausing after this round", out);
            }
            Command::Stop => {
                self.stopping = true;
                self.say_when_closed("stopping after this round", out);
            }
            Command::Remove(worker) => {
                if self.roster.contains(worker) {
                    self.close(worker, Refusal::Removed, out);
                }
            }
        }
    }

    fn say_when_closed(&mut self, words: &str, out: &mut Vec<Action>) {
        if self.flight.is_some() {
            let phase = self.phase;
            self.enter(phase, words.into(), out);
        }
    }

    // --- rounds ----------------------------------------------------------------------------------

    /// Whatever can go on goes on: a round closes, another opens, the run ends.
    fn advance(&mut self, out: &mut Vec<Action>) {
        if self.over.is_some() {
            return;
        }
        if self.flight.is_some() {
            if !self.averaging {
                self.close_round(out);
            }
        } else if self.stopping {
            self.end(DrainReason::Stopped, "stopped by the organizer".into(), out);
        } else if self.published.round >= self.rounds.rounds {
            // The last weights are measured before the run is over.
            match &self.evaluation {
                None => self.end(DrainReason::Finished, "all rounds are done".into(), out),
                Some(_) => {
                    self.measure_at_home(out);
                    self.enter(self.phase, "measuring the last weights".into(), out);
                }
            }
        } else if self.paused {
            self.refresh_waiting(out);
        } else {
            self.open_round(out);
        }
        self.deal_evaluation(out);
    }

    fn open_round(&mut self, out: &mut Vec<Action>) {
        let candidates: Vec<Candidate> = self
            .roster
            .measured()
            .iter()
            // 0: unknown, taken for enough.
            .filter(|m| m.memory_bytes == 0 || m.memory_bytes >= self.rounds.replica_bytes)
            .map(|measured| {
                let known = self.known.get(&measured.worker);
                Candidate {
                    worker: measured.worker,
                    seconds: self.expected_seconds(measured.worker),
                    holds: known.and_then(|known| known.holds),
                    rounds_held: known.map_or(0, |known| known.rounds_held),
                }
            })
            .collect();
        if candidates.is_empty() || (candidates.len() as u32) < self.workers_wanted() {
            self.refresh_waiting(out);
            return;
        }
        self.started = true;
        let round = self.published.round;
        let waited_for = candidates.iter().filter(|candidate| !self.is_mute(candidate.worker));
        let mut expected: Vec<f64> = waited_for.map(|candidate| candidate.seconds).collect();
        if expected.is_empty() {
            expected = candidates.iter().map(|candidate| candidate.seconds).collect();
        }
        let deadline = self.deadlines.seconds(&expected);
        let steps = local_steps::of_round(round, self.rounds.local_steps, self.settings.steps);
        let rates: Vec<f64> = steps.map(|step| self.settings.learning_rate.at(step)).collect();
        let mut replicas = BTreeMap::new();
        for (slot, (worker, block)) in (0..).zip(place(&candidates, &self.updates)) {
            let known = self.known.entry(worker).or_default();
            let fresh = self.rounds.fresh_moments || known.holds != Some(block);
            if fresh {
                known.moments_since = Some(round);
            }
            if known.holds != Some(block) {
                (known.holds, known.rounds_held) = (Some(block), 0);
            }
            known.last = Some((round, self.now));
            let moments_since = known.moments_since;
            replicas.insert(
                worker,
                Replica { block, slot, moments_since, progress: Progress::Working, arrived: None },
            );
            let message = Message::Round(Round {
                round,
                block,
                base: self.published.blocks[block as usize],
                table: self.published.table,
                seed: seeds::noise(self.settings.seed, round, slot),
                learning_rates: rates.clone(),
                fresh,
                deadline_ms: (deadline * 1e3) as u64,
            });
            out.push(Action::Send { worker, message });
            out.push(Action::SendWindows { worker, windows: Windows::Round { round, block, slot } });
        }
        let placed = replicas.iter().map(|(worker, replica)| (*worker, replica.block)).collect();
        out.push(Action::Record(Record::RoundOpened { round, deadline_seconds: deadline, replicas: placed }));
        let count = replicas.len();
        self.flight = Some(Flight { round, opened: self.now, deadline, replicas });
        let words = format!("round {} on {count} worker{}", round + 1, if count == 1 { "" } else { "s" });
        self.enter(Phase::Training, words, out);
    }

    /// Seconds from the opening of a round to this worker's delta.
    fn expected_seconds(&self, worker: WorkerId) -> f64 {
        if let Some(observed) = self.known.get(&worker).and_then(|known| known.observed) {
            return observed;
        }
        let measured = self.roster.measured().into_iter().find(|m| m.worker == worker);
        let Some(measured) = measured else { return 1.0 };
        // Table, layers and head once each way, and the update.
        let step = f64::from(self.rounds.layers_per_block) * measured.layer.total()
            + measured.embedding.total()
            + measured.head_seconds;
        let bytes = 4.0 * self.rounds.parameters as f64 / self.updates.len() as f64;
        let link = measured.link.map_or(0.0, |l| bytes / l.up + bytes / l.down + 4.0 * l.round_trip_seconds);
        UNKNOWN * (f64::from(self.rounds.local_steps) * step + link)
    }

    /// Whether nothing has come of this worker for some rounds: it may take part, and nobody waits for it.
    fn is_mute(&self, worker: WorkerId) -> bool {
        self.known.get(&worker).is_some_and(|known| known.missed >= MUTE)
    }

    /// Close the round if it has come to its end.
    fn close_round(&mut self, out: &mut Vec<Action>) {
        let Some(flight) = &self.flight else { return };
        if flight.is_checking() {
            return;
        }
        let arrived = flight.accepted().count();
        if flight.is_settled() && arrived == 0 && self.roster.is_empty() {
            // Nobody is left, and nothing has come: as if it had never begun.
            out.push(Action::Record(Record::RoundTakenBack { round: flight.round }));
            self.flight = None;
            self.refresh_waiting(out);
            return;
        }
        let elapsed = flight.elapsed(self.now);
        // A mute worker must not hold up every round until the longest time is over.
        let reliable = flight.replicas.keys().filter(|worker| !self.is_mute(**worker)).count();
        let in_time = self.deadlines.may_close(elapsed, flight.deadline, arrived, reliable);
        if !flight.is_settled() && !in_time {
            return;
        }
        self.averaging = true;
        let last = flight.accepted().filter_map(|(_, replica, _)| replica.arrived).fold(0.0, f64::max);
        self.deadlines.learn(flight.participation(), last / flight.deadline);
        let late: Vec<(WorkerId, u32, f64)> = flight
            .replicas
            .iter()
            .filter(|(_, replica)| replica.progress == Progress::Working)
            .map(|(worker, replica)| (*worker, replica.block, self.expected_seconds(*worker)))
            .collect();
        for (worker, block, expected) in late {
            out.push(Action::Record(Record::DeltaMissed { round: flight.round, block, worker }));
            if let Some(known) = self.known.get_mut(&worker) {
                known.view.missed += 1;
                known.missed += 1;
                known.moments_since = None;
                // From its own time, not from how long the round waited: a mute worker would lengthen the next
                // deadline, and then the one after by that.
                known.observed = Some(expected * MISSED);
            }
        }
        let work: Vec<Work> = flight
            .accepted()
            .map(|(worker, replica, accepted)| Work {
                worker,
                block: replica.block,
                slot: replica.slot,
                moments_since: replica.moments_since,
                delta: accepted.blob,
            })
            .collect();
        let updates = self.updates.clone();
        self.totals.assigned += flight.replicas.len() as u64;
        self.totals.accepted += work.len() as u64;
        for (_, _, accepted) in flight.accepted() {
            self.totals.bytes_down += accepted.traffic.down;
            self.totals.bytes_up += accepted.traffic.up;
        }
        let round = flight.round;
        let done = round + 1;
        let steps = |rounds| local_steps::done(rounds, self.rounds.local_steps, self.settings.steps);
        let checkpoint = done >= self.rounds.rounds
            || self.stopping
            || steps(done) / self.settings.snapshot_every > steps(round) / self.settings.snapshot_every;
        out.push(Action::Average { round, work, updates, totals: self.totals, checkpoint });
    }

    /// The round's weights are there.
    fn averaged(&mut self, published: Published, averaged: Averaged, out: &mut Vec<Action>) {
        let Some(mut flight) = self.flight.take_if(|flight| flight.round + 1 == published.round) else {
            return;
        };
        self.averaging = false;
        let round = flight.round;
        for (worker, refusal) in &averaged.dropped {
            self.totals.accepted -= 1;
            if let Some(replica) = flight.replicas.get_mut(worker) {
                replica.progress = Progress::Out;
            }
            if let Some(known) = self.known.get_mut(worker) {
                known.view.accepted -= 1;
            }
            self.delta_refused(*worker, round, refusal, out);
        }
        let before = self.steps_done();
        self.published = published;
        for (block, updated) in averaged.updated.iter().enumerate() {
            if *updated {
                self.updates[block] += 1;
                let scores = flight.accepted().filter(|(_, replica, _)| replica.block as usize == block);
                let scores: Vec<f64> = scores.map(|(_, _, accepted)| accepted.cross_entropy).collect();
                self.local[block] = Some(scores.iter().sum::<f64>() / scores.len().max(1) as f64);
            }
        }
        let seconds = flight.elapsed(self.now);
        let accepted = flight.accepted().count();
        let participation = flight.participation();
        self.participation = Some(participation);
        self.participations.0 += participation;
        self.participations.1 += 1;
        self.round_seconds = Some(seconds);
        let run = &self.settings.run;
        let tokens = f64::from(run.sequences) * f64::from(run.context) * (self.steps_done() - before) as f64;
        self.tokens_per_second = if seconds > 0.0 { tokens * accepted as f64 / seconds } else { 0.0 };
        let updated = (0..).zip(&averaged.updated).filter(|(_, updated)| **updated).map(|(block, _)| block);
        out.push(Action::Record(Record::RoundClosed {
            round,
            seconds,
            assigned: flight.replicas.len() as u64,
            accepted: accepted as u64,
            updated: updated.collect(),
            state: self.published.state().to_string(),
        }));
        let steps = self.steps_done();
        let every = self.settings.validate_every;
        let last = self.published.round >= self.rounds.rounds;
        let due = every > 0 && (last || steps / every > before / every);
        let scores: Vec<f64> = flight.accepted().map(|(_, _, accepted)| accepted.cross_entropy).collect();
        if !scores.is_empty() {
            let point = CurvePoint {
                step: steps,
                train_loss: scores.iter().sum::<f64>() / scores.len() as f64,
                validation_loss: None,
                learning_rate: self.settings.learning_rate.at(steps.saturating_sub(1)),
                tokens_per_second: self.tokens_per_second,
                evaluation: None,
                participation: Some(participation),
            };
            if due && (last || self.evaluation.is_none()) || !self.points.is_empty() {
                self.points.push_back(point);
            } else {
                self.publish(point, out);
            }
        }
        // One at a time: where measuring is slower than training, fewer rounds are measured.
        if due && self.evaluation.is_none() {
            self.evaluation = Some(Evaluation::new(self.published.clone(), self.settings.validation_batches));
            if self.rounds.evaluator == Evaluator::Coordinator {
                self.measure_at_home(out);
            }
        } else if due && last {
            // What is being measured is older than the last weights, which must be.
            self.measure_at_home(out);
        }
    }

    // --- evaluation ------------------------------------------------------------------------------

    /// The coordinator takes over what no worker has brought.
    fn measure_at_home(&mut self, out: &mut Vec<Action>) {
        let Some(evaluation) = self.evaluation.as_mut().filter(|evaluation| !evaluation.at_home) else {
            return;
        };
        evaluation.at_home = true;
        let (published, batches) = (evaluation.published.clone(), evaluation.missing());
        out.push(Action::Evaluate { published, batches });
    }

    /// Give batches to workers that have nothing else to do.
    fn deal_evaluation(&mut self, out: &mut Vec<Action>) {
        let Some(evaluation) = self.evaluation.as_mut().filter(|evaluation| !evaluation.at_home) else {
            return;
        };
        let idle = |worker: &WorkerId| match &self.flight {
            None => true,
            Some(flight) => flight
                .replicas
                .get(worker)
                .is_none_or(|replica| matches!(replica.progress, Progress::Accepted(_) | Progress::Out)),
        };
        for worker in self.roster.measured().iter().map(|measured| measured.worker).filter(idle) {
            let Some(batch) = evaluation.deal(worker) else { continue };
            let published = &evaluation.published;
            let round = published.round;
            let message = Message::Evaluate(Evaluate {
                round,
                batch,
                blocks: published.blocks.clone(),
                table: published.table,
                seed: seeds::evaluation(self.settings.seed, batch),
                draws: self.rounds.draws,
            });
            out.push(Action::Send { worker, message });
            out.push(Action::SendWindows { worker, windows: Windows::Evaluation { round, batch } });
        }
    }

    fn evaluated_by(&mut self, worker: WorkerId, evaluated: Evaluated, out: &mut Vec<Action>) {
        let Evaluated { round, batch, scores } = evaluated;
        let Some(evaluation) = &mut self.evaluation else { return };
        if evaluation.published.round != round || !evaluation.has(worker, batch) {
            return; // taken back meanwhile
        }
        let blocks = self.updates.len();
        let whole = [&scores.chain, &scores.alone, &scores.local, &scores.scrambled];
        if !scores.is_finite() || whole.iter().any(|list| list.len() != blocks) {
            evaluation.take_back(worker);
            let detail = format!("its scores must be finite, with {blocks} in each list");
            self.close(worker, Refusal::NotInPlan { message: "Evaluated".into(), detail }, out);
            return;
        }
        self.scored(round, batch, scores, out);
    }

    fn scored(
        &mut self,
        round: u64,
        batch: u32,
        scores: protocol::evaluation::Scores,
        out: &mut Vec<Action>,
    ) {
        let Some(evaluation) = self.evaluation.as_mut().filter(|e| e.published.round == round) else {
            return;
        };
        evaluation.take(batch, scores);
        let Some(scores) = evaluation.done() else { return };
        self.evaluation = None;
        self.evaluated = Some((round, scores.clone()));
        out.push(Action::Record(Record::Evaluated { round, scores: scores.clone() }));
        let step = local_steps::done(round, self.rounds.local_steps, self.settings.steps);
        if let Some(point) = self.points.iter_mut().find(|point| point.step == step) {
            point.validation_loss = Some(scores.one_draw);
            point.evaluation = Some(scores);
        }
        // If it was an older round's turn, the last weights are still to be measured.
        let older = self.published.round >= self.rounds.rounds && round < self.published.round;
        let hold = usize::from(older);
        while self.points.len() > hold
            && let Some(point) = self.points.pop_front()
        {
            self.publish(point, out);
        }
        if older {
            self.evaluation = Some(Evaluation::new(self.published.clone(), self.settings.validation_batches));
            self.measure_at_home(out);
        }
    }

    fn publish(&mut self, point: CurvePoint, out: &mut Vec<Action>) {
        self.curve.push(point.clone());
        out.push(Action::Point(point));
    }

    // --- phases ----------------------------------------------------------------------------------

    fn waiting_reason(&self) -> String {
        if self.paused {
            return "paused by the organizer".into();
        }
        let want = self.workers_wanted();
        let measured = self.roster.measured();
        let fits = |bytes: u64| bytes == 0 || bytes >= self.rounds.replica_bytes;
        let have = measured.iter().filter(|m| fits(m.memory_bytes)).count();
        let measuring = self.roster.len() - measured.len();
        let small = measured.len() - have;
        let mut words = match (have, measuring) {
            (0, 0) => format!("waiting for {want} worker{}", if want == 1 { "" } else { "s" }),
            (_, 0) => format!("{have} of {want} workers are ready"),
            _ => format!("{have} of {want} workers are ready, {measuring} measuring"),
        };
        if small > 0 {
            let mb = self.rounds.replica_bytes.div_ceil(1_000_000);
            words.push_str(&format!("; {small} cannot give the {mb} MB that a block takes"));
        }
        words
    }

    fn refresh_waiting(&mut self, out: &mut Vec<Action>) {
        if self.flight.is_none() && self.over.is_none() {
            let phase = if self.paused { Phase::Paused } else { Phase::Waiting };
            let reason = self.waiting_reason();
            self.enter(phase, reason, out);
        }
    }

    fn end(&mut self, reason: DrainReason, words: String, out: &mut Vec<Action>) {
        while let Some(point) = self.points.pop_front() {
            self.publish(point, out);
        }
        self.flight = None;
        self.averaging = false;
        self.evaluation = None;
        self.over = Some(reason);
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
