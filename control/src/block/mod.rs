//! Block mode: rounds in which workers train blocks apart, and the coordinator averages what they learned.
//!
//! ```text
//! mod.rs        state, and which event goes where      rounds.rs      rounds opened, closed and averaged
//! deltas.rs     deltas announced, checked, refused     evaluations.rs published weights measured
//! placement.rs  who trains which block                 deadline.rs    how long a round may take
//! round.rs      one round in progress                  evaluation.rs  one measurement in progress
//! manifest.rs   what makes a round count               expectation.rs how long a worker is expected to take
//! local_steps.rs, seeds.rs  numbers from which any work can be done again
//! view.rs       what the pages show
//! ```
//!
//! A run waits for workers, gives each a block, opens a round, and closes it when all deltas are in or its time is up.
//! What was accepted is averaged; then the next round opens. Workers come and go at any time: who comes takes part from
//! the next round on, who goes is missed in this one.

pub mod deadline;
mod deltas;
pub mod evaluation;
mod evaluations;
mod expectation;
pub mod local_steps;
mod manifest;
pub mod placement;
mod round;
mod rounds;
pub mod seeds;
mod view;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use protocol::{
    blob::BlobRef,
    delta::DeltaRefusal,
    evaluation::Scores,
    message::{EvaluationTask, Fault, RoundTask, Up},
    published::Published,
    refusal::Refusal,
    view::{CurvePoint, ReplicaView, RunView},
    worker_id::WorkerId,
};

use crate::{
    core::{RunCore, Standing, Turn, unexpected},
    curve::Curve,
    event::Command,
    record::Traffic,
    run::{Mode, Run, end},
    settings::Settings,
};
use deadline::{DeadlinePolicy, Deadlines};
use evaluation::{Evaluation, Evaluator};
pub use manifest::{RoundManifest, Totals, Work};
use round::RoundInProgress;

/// What block mode needs beside [`Settings`].
#[derive(Debug, Clone, PartialEq)]
pub struct RoundSettings {
    /// H, local steps of a worker in a round.
    pub local_steps: u32,
    /// Rounds of the whole run.
    pub rounds: u64,
    /// Where a round's deadline comes from.
    pub deadline: DeadlinePolicy,
    /// Begin every round with empty moments.
    pub fresh_moments: bool,
    /// Who computes evaluations.
    pub evaluator: Evaluator,
    /// K, draws of the scores with several.
    pub draws: u32,
    /// Ends of each block's own range of sigma.
    pub ranges: Vec<(f64, f64)>,
    /// L_b, layers of each block.
    pub layers_per_block: u32,
    /// Bytes that a replica takes.
    pub replica_bytes: u64,
    /// Numbers in the whole model.
    pub parameters: u64,
    /// For people.
    pub aggregator: String,
}

/// What happens in block mode alone.
#[derive(Debug, Clone)]
pub enum Event {
    /// A delta has been checked.
    DeltaChecked {
        /// Whose.
        worker: WorkerId,
        /// Of which round.
        round: u64,
        /// Its length, if it passed.
        outcome: Result<f64, DeltaRefusal>,
        /// What went between the store, the session and the worker since its last delta.
        traffic: Traffic,
    },
    /// The weights after a round are published, and its manifest is on disk.
    Averaged {
        /// The weights.
        published: Published,
        /// Whether each block has new weights.
        updated: Vec<bool>,
        /// Deltas that had passed alone but not beside the others.
        dropped: Vec<(WorkerId, DeltaRefusal)>,
    },
    /// They could not be; the deltas are still there.
    AverageFailed {
        /// The round whose deltas they are.
        round: u64,
        /// For people.
        why: String,
        /// Whether the same may succeed later; else the round is closed without its deltas.
        again: bool,
    },
    /// The coordinator has measured the weights of a round on one batch.
    Evaluated {
        /// Rounds they have seen.
        round: u64,
        /// The batch.
        batch: u32,
        /// The scores, or why there are none.
        outcome: Result<Scores, String>,
    },
}

/// What is to be done in block mode alone.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Cut the windows of this round from the training split, and send both.
    SendRound {
        /// To whom.
        worker: WorkerId,
        /// What to do.
        task: RoundTask,
        /// The replica's number in the round.
        slot: u32,
    },
    /// Cut the windows of this batch from the held-out split, and send both.
    SendEvaluation {
        /// To whom.
        worker: WorkerId,
        /// What to do.
        task: EvaluationTask,
    },
    /// Check a delta, then say [`Event::DeltaChecked`].
    CheckDelta {
        /// Whose.
        worker: WorkerId,
        /// The block it was given.
        block: u32,
        /// What it started from.
        published: Published,
        /// Where it lies.
        blob: BlobRef,
    },
    /// Average these into the weights, publish them, then say [`Event::Averaged`].
    Average {
        /// The round.
        round: u64,
        /// What has been accepted.
        work: Vec<Work>,
        /// Rounds that have changed each block so far.
        updates: Vec<u64>,
        /// Sums over the run, with all of `work`.
        totals: Totals,
        /// Write a checkpoint too.
        checkpoint: bool,
    },
    /// Measure published weights on these batches, then say [`Event::Evaluated`] for each.
    Evaluate {
        /// The weights.
        published: Published,
        /// The batches.
        batches: Vec<u32>,
    },
}

/// What is remembered of a worker from round to round.
#[derive(Debug, Clone, Default)]
struct Replica {
    /// The block it has AdamW's moments for.
    holds: Option<u32>,
    rounds_held: u64,
    /// The round the moments go back to; None where a round in between did not count.
    moments_since: Option<u64>,
    /// Seconds from the opening of a round to its delta.
    observed: Option<f64>,
    /// The last round it had a part in, and when that opened.
    last: Option<(u64, Duration)>,
    /// Rounds in a row that ended without its delta.
    missed: u32,
    view: ReplicaView,
}

/// How far the averaging of a closed round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Averaging {
    /// The round is open.
    No,
    /// Its deltas are being averaged.
    Running,
    /// The disk did not take the weights; it is tried again at this time.
    Again(Duration),
}

/// The state of block mode.
#[derive(Debug, Clone)]
pub struct Block {
    settings: RoundSettings,
    replicas: BTreeMap<WorkerId, Replica>,
    published: Published,
    updates: Vec<u64>,
    totals: Totals,
    /// Mean local cross-entropy of each block's last accepted deltas.
    local: Vec<Option<f64>>,
    deadlines: Deadlines,
    round: Option<RoundInProgress>,
    averaging: Averaging,
    evaluation: Option<Evaluation>,
    evaluated: Option<(u64, Scores)>,
    /// Points held back until the first of them has been measured.
    points: VecDeque<CurvePoint>,
    participation: Option<f64>,
    participations: (f64, u64),
    round_seconds: Option<f64>,
    tokens_per_second: f64,
}

/// A run of block mode.
pub type BlockRun = Run<Block>;

impl BlockRun {
    /// A run from published weights: the first ones, or with a manifest those it names; `curve` is what an earlier
    /// process saw.
    pub fn new(
        settings: Settings,
        rounds: RoundSettings,
        published: Published,
        resume: Option<RoundManifest>,
        curve: Curve,
    ) -> Self {
        let blocks = published.blocks.len();
        // A run that has begun goes on with whoever is there.
        let started = published.round > 0;
        let (updates, totals) = resume
            .map_or((vec![0; blocks], Totals::default()), |manifest| (manifest.updates, manifest.totals));
        let mut curve = curve;
        curve.cut_after(local_steps::done(published.round, rounds.local_steps, settings.steps));
        let block = Block {
            deadlines: Deadlines::new(rounds.deadline),
            settings: rounds,
            replicas: BTreeMap::new(),
            published,
            updates,
            totals,
            local: vec![None; blocks],
            round: None,
            averaging: Averaging::No,
            evaluation: None,
            evaluated: None,
            points: VecDeque::new(),
            participation: None,
            participations: (0.0, 0),
            round_seconds: None,
            tokens_per_second: 0.0,
        };
        Run::with(settings, started, curve, block)
    }

    /// The weights that the next round starts from.
    pub fn published(&self) -> &Published {
        &self.mode().published
    }

    /// Sums over the run.
    pub fn totals(&self) -> Totals {
        self.mode().totals
    }

    /// Mean over the rounds done of accepted deltas over assigned replicas.
    pub fn mean_participation(&self) -> Option<f64> {
        self.mode().mean_participation()
    }
}

impl Block {
    fn mean_participation(&self) -> Option<f64> {
        let (sum, count) = self.participations;
        (count > 0).then(|| sum / count as f64)
    }

    /// Local steps of each block so far.
    fn steps_done(&self, core: &RunCore) -> u64 {
        local_steps::done(self.published.round, self.settings.local_steps, core.settings.steps)
    }

    fn workers_wanted(&self, core: &RunCore) -> u32 {
        if core.started { 1 } else { core.settings.start_with.max(1) }
    }
}

impl Mode for Block {
    type Event = Event;
    type Action = Action;

    fn said(&mut self, turn: &mut Turn<'_, Action>, worker: WorkerId, message: Up) -> Result<(), Refusal> {
        match message {
            Up::DeltaReady(ready) => self.delta_ready(turn, worker, ready),
            Up::EvaluationReport(report) => self.evaluation_report(turn, worker, report),
            other => Err(unexpected(&other)),
        }
    }

    fn profiled(&mut self, _: &mut Turn<'_, Action>, worker: WorkerId) {
        self.replicas.entry(worker).or_default();
    }

    fn failed(&mut self, _: &mut Turn<'_, Action>, worker: WorkerId, fault: &Fault) -> Standing {
        let mut held = false;
        if let Some(evaluation) = &mut self.evaluation
            && evaluation.published.round == fault.during
        {
            held |= evaluation.take_back(worker);
        }
        if let Some(round) = self.round.as_mut().filter(|round| round.round == fault.during) {
            held |= round.give_up(worker);
        }
        if held {
            let replica = self.replicas.entry(worker).or_default();
            (replica.holds, replica.moments_since) = (None, None);
            return Standing::Counts;
        }
        if fault.during <= self.published.round { Standing::Stale } else { Standing::Unfounded }
    }

    fn left(&mut self, _: &mut Turn<'_, Action>, worker: WorkerId, _: &str) {
        self.replicas.remove(&worker);
        if let Some(round) = &mut self.round {
            round.give_up(worker);
        }
        if let Some(evaluation) = &mut self.evaluation {
            evaluation.take_back(worker);
        }
    }

    fn told(&mut self, turn: &mut Turn<'_, Action>, event: Event) {
        match event {
            Event::DeltaChecked { worker, round, outcome, traffic } => {
                self.delta_checked(turn, worker, round, outcome, traffic);
            }
            Event::Averaged { published, updated, dropped } => {
                self.averaged(turn, published, &updated, &dropped);
            }
            Event::AverageFailed { round, why, again } => self.average_failed(turn, round, &why, again),
            Event::Evaluated { round, batch, outcome } => self.evaluated(turn, round, batch, outcome),
        }
    }

    fn forgive(&mut self, time: Duration) {
        let Some(round) = &mut self.round else { return };
        round.opened = round.opened.saturating_add(time);
        for (number, opened) in self.replicas.values_mut().filter_map(|replica| replica.last.as_mut()) {
            if *number == round.round {
                *opened = round.opened;
            }
        }
    }

    fn tick(&mut self, _: &mut Turn<'_, Action>) {}

    fn asked(&mut self, turn: &mut Turn<'_, Action>, command: Command) {
        let words = match command {
            Command::Pause => "pausing after this round",
            Command::Stop => "stopping after this round",
            Command::Start | Command::Remove(_) => return,
        };
        if self.round.is_some() {
            turn.explain(words);
        }
    }

    fn advance(&mut self, turn: &mut Turn<'_, Action>) {
        self.close_round(turn);
        if self.round.is_some() {
            // It is open, or being averaged.
        } else if turn.core.stopping {
            end(self, turn, protocol::message::DrainReason::Stopped, "stopped by the organizer");
            return;
        } else if self.published.round >= self.settings.rounds {
            // The last weights are measured before the run is over.
            if self.evaluation.is_none() {
                end(self, turn, protocol::message::DrainReason::Finished, "all rounds are done");
                return;
            }
            self.measure_by_coordinator(turn);
            turn.explain("measuring the last weights");
        } else {
            self.open_round(turn);
        }
        self.deal_evaluation(turn);
    }

    fn ended(&mut self, turn: &mut Turn<'_, Action>) {
        while let Some(point) = self.points.pop_front() {
            turn.publish(point);
        }
        self.round = None;
        self.averaging = Averaging::No;
        self.evaluation = None;
    }

    fn wake_at(&self, now: Duration) -> Option<Duration> {
        let round = self.round.as_ref()?;
        match self.averaging {
            Averaging::Running => None,
            Averaging::Again(at) => Some(at),
            // While a delta is being checked, the word of it wakes the run: a deadline that has passed would do so
            // without end.
            Averaging::No if round.is_checking() => None,
            Averaging::No => {
                let look = self.deadlines.next_look(round.elapsed(now), round.deadline);
                // A nanosecond more: rounded down, the time would not be up yet when it comes.
                let look = Duration::try_from_secs_f64(look).ok()?.saturating_add(Duration::from_nanos(1));
                Some(round.opened.saturating_add(look))
            }
        }
    }

    fn view(&self, core: &RunCore, now: Duration) -> RunView {
        self.run_view(core, now)
    }
}
