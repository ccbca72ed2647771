//! A run of block mode under a virtual clock: what the coordinator's IO and all workers do, as far as the run can tell.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use control::{
    Event, Record, Settings,
    action::Action,
    block::{self, BlockRun, RoundSettings, deadline::DeadlinePolicy, evaluation::Evaluator},
    curve::Curve,
    record::Traffic,
};
use protocol::{
    blob::BlobRef,
    delta::{DeltaEncoding, DeltaRefusal},
    evaluation::Scores,
    message::{DeltaOutcome, DeltaReady, DeviceStatus, Down, RoundTask, Timings, Up},
    published::Published,
    refusal::Refusal,
    spec::{BlockSpec, Moments},
    worker_id::WorkerId,
};

use super::{assert_counts_are_right, assert_record_is_json, assert_view_is_json, hello, profile, run_spec};

/// B of these runs.
pub const BLOCKS: u32 = 3;
/// Rounds of these runs.
pub const ROUNDS: u64 = 6;
/// H of these runs.
const LOCAL_STEPS: u64 = 10;

/// The deadlines of most runs here.
pub const ADAPTIVE: DeadlinePolicy = DeadlinePolicy::Adaptive { target: 0.86, floor: 0.6, longest: 100.0 };

/// Settings of a run of six rounds, of which the last has fewer steps.
pub fn settings(start_with: u32, validate_every: u64) -> Settings {
    let blocks = BlockSpec {
        count: BLOCKS,
        sigma_min: 1.0,
        sigma_max: 10.0,
        p_mean: -1.2,
        p_std: 1.2,
        gamma: 0.1,
        delta: DeltaEncoding::F32,
    };
    let mut run = run_spec(3, 1, Some(blocks));
    run.moments = Moments::None;
    Settings {
        validate_every,
        snapshot_every: 20,
        lease: Duration::from_secs(1000),
        step_deadline: Duration::from_secs(10_000),
        ..super::settings(run, ROUNDS * LOCAL_STEPS - 3, start_with)
    }
}

/// What block mode needs beside.
pub fn round_settings(evaluator: Evaluator) -> RoundSettings {
    RoundSettings {
        local_steps: LOCAL_STEPS as u32,
        rounds: ROUNDS,
        deadline: ADAPTIVE,
        fresh_moments: false,
        evaluator,
        draws: 2,
        ranges: vec![(1.0, 10.0); BLOCKS as usize],
        layers_per_block: 1,
        replica_bytes: 1000,
        parameters: 100,
        aggregator: "mean".into(),
    }
}

/// The weights after so many rounds.
pub fn published(round: u64) -> Published {
    let blob = |what: &str| BlobRef::of(format!("{what} {round}").as_bytes());
    let blocks = (0..BLOCKS).map(|block| blob(&format!("block {block}"))).collect();
    Published { round, blocks, table: blob("table"), outer: None }
}

/// Scores as a measurement gives them.
pub fn scores() -> Scores {
    let list = vec![3.0; BLOCKS as usize];
    Scores {
        one_draw: 3.0,
        draws: 2,
        many_draws: 2.9,
        from_zero: 3.1,
        chain: list.clone(),
        alone: list.clone(),
        local: list.clone(),
        scrambled: list,
    }
}

/// A run and what is around it.
pub struct World {
    pub run: BlockRun,
    pub now: Duration,
    /// What each connected worker was last told to do.
    pub tasks: BTreeMap<WorkerId, Option<RoundTask>>,
    /// Deltas being checked.
    pub checks: Vec<(WorkerId, u64)>,
    /// Rounds being averaged, each with whose deltas.
    pub averages: Vec<(u64, Vec<WorkerId>)>,
    /// Accepted work of every round, as it went into the average.
    pub ledger: Vec<(u64, WorkerId, u32)>,
    pub outcomes: Vec<(WorkerId, DeltaOutcome)>,
    /// Round and slot of windows that were sent.
    windows: BTreeSet<(u64, u32)>,
    /// Batches for the coordinator to measure.
    pub by_coordinator: Vec<(u64, u32)>,
    /// Batches for workers to measure.
    pub by_workers: Vec<(WorkerId, u64, u32)>,
    pub records: Vec<Record>,
    pub points: Vec<u64>,
    pub closed: Vec<(WorkerId, Refusal)>,
    /// Workers that have sent their delta of a round.
    pub delivered: BTreeSet<(WorkerId, u64)>,
    local_steps: u64,
    next: u64,
}

impl World {
    pub fn new(settings: Settings, rounds: RoundSettings, from: Published) -> Self {
        World {
            local_steps: u64::from(rounds.local_steps),
            run: BlockRun::new(settings, rounds, from, None, Curve::default()),
            now: Duration::ZERO,
            tasks: BTreeMap::new(),
            checks: vec![],
            averages: vec![],
            ledger: vec![],
            outcomes: vec![],
            windows: BTreeSet::new(),
            by_coordinator: vec![],
            by_workers: vec![],
            records: vec![],
            points: vec![],
            closed: vec![],
            delivered: BTreeSet::new(),
            next: 1,
        }
    }

    /// A new run without evaluation.
    pub fn start(start_with: u32) -> Self {
        Self::new(settings(start_with, 0), round_settings(Evaluator::Coordinator), published(0))
    }

    pub fn handle(&mut self, event: Event) {
        let actions = self.run.handle(self.now, event);
        assert_counts_are_right(&self.run.core().roster, self.now);
        self.act(actions);
    }

    pub fn told(&mut self, event: block::Event) {
        let actions = self.run.told(self.now, event);
        self.act(actions);
    }

    pub fn say(&mut self, worker: WorkerId, message: impl Into<Up>) {
        self.handle(Event::Said { worker, message: message.into() });
    }

    fn act(&mut self, actions: Vec<Action<block::Action>>) {
        let mut recorded = false;
        for action in actions {
            match action {
                Action::Send { worker, message: Down::DeltaOutcome(outcome) } => {
                    self.outcomes.push((worker, outcome));
                }
                Action::Send { .. } => {}
                Action::Close { worker, refusal } => {
                    self.tasks.remove(&worker);
                    self.closed.push((worker, refusal));
                }
                Action::Record(record) => {
                    assert_record_is_json(&record);
                    recorded = true;
                    // A round that was taken back begins again with the same windows.
                    if let Record::RoundTakenBack { round } = record {
                        self.windows.retain(|(of, _)| *of != round);
                    }
                    self.records.push(record);
                }
                Action::Point(point) => self.points.push(point.step),
                Action::Mode(action) => self.act_of_mode(action),
            }
        }
        if recorded {
            let view = self.run.view(self.now);
            assert_view_is_json(&view);
            assert_eq!(view.epoch, 0, "block mode has no plans");
        }
    }

    fn act_of_mode(&mut self, action: block::Action) {
        match action {
            block::Action::SendRound { worker, task, slot } => {
                let published = self.run.published();
                assert_eq!(task.round, published.round, "a round starts from what is published");
                assert_eq!(task.base, published.blocks[task.block as usize]);
                assert_eq!(task.table, published.table);
                let settings = &self.run.core().settings;
                let steps =
                    settings.steps.saturating_sub(task.round * self.local_steps).min(self.local_steps);
                assert_eq!(task.learning_rates.len() as u64, steps);
                assert!(
                    self.windows.insert((task.round, slot)),
                    "no two replicas of a round have the same windows"
                );
                *self.tasks.get_mut(&worker).unwrap() = Some(task);
            }
            block::Action::SendEvaluation { worker, task } => {
                self.by_workers.push((worker, task.round, task.batch));
            }
            block::Action::CheckDelta { worker, published, .. } => {
                self.checks.push((worker, published.round));
            }
            block::Action::Average { round, work, updates, checkpoint, totals } => {
                assert!(self.checks.is_empty(), "a round waits for what is being checked");
                assert_eq!(round, self.run.published().round);
                if self.run.core().settings.snapshot_every == 20 && !self.run.core().stopping {
                    assert_eq!(checkpoint, round % 2 == 1, "every 20 steps, and at the end");
                }
                assert_eq!(updates.len(), BLOCKS as usize);
                assert!(totals.accepted as usize >= work.len());
                self.averages.push((round, work.iter().map(|work| work.worker).collect()));
                self.ledger.extend(work.iter().map(|work| (round, work.worker, work.block)));
            }
            block::Action::Evaluate { published, batches } => {
                self.by_coordinator.extend(batches.iter().map(|batch| (published.round, *batch)));
            }
        }
    }

    pub fn join(&mut self, memory_bytes: u64) -> WorkerId {
        let worker = self.arrive();
        if self.tasks.contains_key(&worker) {
            self.say(worker, profile(0.03, memory_bytes, None));
        }
        worker
    }

    /// A worker that has not measured itself.
    pub fn arrive(&mut self) -> WorkerId {
        let worker = WorkerId(self.next);
        self.next += 1;
        self.tasks.insert(worker, None);
        self.handle(Event::Joined { worker, hello: hello(), token: "t".into() });
        worker
    }

    pub fn leave(&mut self, worker: WorkerId) {
        self.tasks.remove(&worker);
        self.handle(Event::Gone { worker, why: "closed".into() });
    }

    /// What a worker says once its delta is there.
    pub fn delta(&self, worker: WorkerId, round: u64, block: u32) -> DeltaReady {
        DeltaReady {
            round,
            block,
            blob: BlobRef::of(format!("{worker} {round}").as_bytes()),
            loss: 1.0,
            cross_entropy: 2.0,
            timings: Timings::default(),
            status: DeviceStatus::default(),
        }
    }

    /// The worker says that its delta is there.
    pub fn ready(&mut self, worker: WorkerId, round: u64, block: u32) {
        self.say(worker, self.delta(worker, round, block));
    }

    /// The worker's delta for what it was told to do.
    pub fn deliver(&mut self, worker: WorkerId) {
        if let Some(Some(task)) = self.tasks.get(&worker).cloned() {
            self.ready(worker, task.round, task.block);
        }
    }

    pub fn check(&mut self, outcome: impl Fn(WorkerId) -> Result<f64, DeltaRefusal>) {
        for (worker, round) in std::mem::take(&mut self.checks) {
            let (outcome, traffic) = (outcome(worker), Traffic { down: 5, up: 7 });
            self.told(block::Event::DeltaChecked { worker, round, outcome, traffic });
        }
    }

    pub fn average(&mut self) {
        for (round, _) in std::mem::take(&mut self.averages) {
            let updated = (0..BLOCKS)
                .map(|block| self.ledger.iter().any(|(r, _, b)| *r == round && *b == block))
                .collect();
            self.told(block::Event::Averaged { published: published(round + 1), updated, dropped: vec![] });
        }
    }

    pub fn measure(&mut self) {
        for (round, batch) in std::mem::take(&mut self.by_coordinator) {
            self.told(block::Event::Evaluated { round, batch, outcome: Ok(scores()) });
        }
    }

    /// Time passes.
    pub fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
        self.handle(Event::Tick);
    }

    /// Everybody delivers and everything is accepted.
    pub fn round(&mut self) {
        for worker in self.tasks.keys().copied().collect::<Vec<_>>() {
            self.deliver(worker);
        }
        self.check(|_| Ok(1.0));
        self.average();
    }

    /// Seconds that the open round may take.
    pub fn deadline(&self) -> f64 {
        self.run.view(self.now).rounds.unwrap().deadline_seconds
    }

    pub fn reason(&self) -> String {
        self.run.view(self.now).reason
    }

    /// Kinds of the deltas' refusals, in order.
    pub fn refused(&self) -> Vec<String> {
        let name = |record: &Record| match record {
            Record::DeltaRefused { refusal, .. } => Some(refusal.clone()),
            _ => None,
        };
        self.records.iter().filter_map(name).collect()
    }

    /// Rounds that were closed, in order.
    pub fn rounds_closed(&self) -> Vec<u64> {
        let round = |record: &Record| match record {
            Record::RoundClosed { round, .. } => Some(*round),
            _ => None,
        };
        self.records.iter().filter_map(round).collect()
    }
}
