//! The machine of block mode under any order of events: workers come, go, are late, lie and fall silent.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coordinator::{
    plan::Stages,
    rounds::{
        DeltaRefusal, Published,
        deadline::DeadlinePolicy,
        evaluation::Evaluator,
        keeper::Averaged,
        machine::{Machine, RoundSettings},
    },
    run::{
        event::{Action, Command, Event, Record, Traffic, Windows, WorkerId},
        machine::Settings,
    },
};
use engine::learning_rate::LearningRate;
use proptest::{collection::vec, prelude::*};
use protocol::{
    VERSION, blob::BlobRef, delta::DeltaEncoding, evaluation::Scores, message::*, refusal::Refusal, spec::*,
    tensor::Encoding, view::Phase,
};

const BLOCKS: u32 = 3;
const ROUNDS: u64 = 6;

fn settings(start_with: u32, validate_every: u64) -> Settings {
    let run = RunSpec {
        name: "rounds".into(),
        model: ModelSpec {
            vocabulary: 11,
            positions: 8,
            width: 8,
            heads: 2,
            layers: 3,
            tie_embeddings: false,
        },
        optimizer: OptimizerSpec {
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
        },
        sequences: 2,
        context: 8,
        micro_batches: 1,
        recompute: false,
        wire: Encoding::F32,
        moments: Moments::None,
        blocks: Some(BlockSpec {
            count: BLOCKS,
            sigma_min: 1.0,
            sigma_max: 10.0,
            p_mean: -1.2,
            p_std: 1.2,
            gamma: 0.1,
            delta: DeltaEncoding::F32,
        }),
    };
    Settings {
        run,
        // The last round has fewer steps.
        steps: ROUNDS * 10 - 3,
        seed: 1,
        stages: Stages::Auto,
        start_with,
        learning_rate: LearningRate { peak: 1e-3, floor: 1e-4, warmup_steps: 5, total_steps: 57 },
        validate_every,
        validation_batches: 2,
        snapshot_every: 20,
        heartbeat: Duration::from_secs(1),
        lease: Duration::from_secs(1000),
        step_deadline: Duration::from_secs(10_000),
        max_workers: 8,
        corpus: "text".into(),
        tokenizer: "bytes".into(),
        train_tokens: 1000,
    }
}

fn round_settings(deadline: DeadlinePolicy, evaluator: Evaluator) -> RoundSettings {
    RoundSettings {
        local_steps: 10,
        rounds: ROUNDS,
        deadline,
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

const ADAPTIVE: DeadlinePolicy = DeadlinePolicy::Adaptive { target: 0.86, floor: 0.6, longest: 100.0 };

fn published(round: u64) -> Published {
    let blob = |what: &str| BlobRef::of(format!("{what} {round}").as_bytes());
    let blocks = (0..BLOCKS).map(|block| blob(&format!("block {block}"))).collect();
    Published { round, blocks, table: blob("table"), outer: None }
}

fn profile(memory_bytes: u64) -> Profile {
    let pass = PassSeconds { forward: 0.01, backward: 0.02 };
    Profile {
        backend: Backend::Cpu,
        device: "test".into(),
        threads: 1,
        memory_bytes,
        layer: pass,
        embedding: pass,
        head_seconds: 0.01,
        link: None,
    }
}

/// The coordinator's shell and all workers, as far as the machine can tell.
struct World {
    machine: Machine,
    now: Duration,
    /// What each connected worker was last told to do.
    tasks: BTreeMap<WorkerId, Option<Round>>,
    /// Deltas being looked at.
    checks: Vec<(WorkerId, u64)>,
    averages: Vec<(u64, Vec<WorkerId>)>,
    /// Accepted work of every round, as it went into the average.
    ledger: Vec<(u64, WorkerId, u32)>,
    judged: Vec<(WorkerId, Judged)>,
    windows: BTreeSet<(u64, u32)>,
    home: Vec<(u64, u32)>,
    away: Vec<(WorkerId, u64, u32)>,
    records: Vec<Record>,
    points: Vec<u64>,
    closed: Vec<(WorkerId, Refusal)>,
    next: u64,
}

impl World {
    fn new(machine: Machine) -> Self {
        World {
            machine,
            now: Duration::ZERO,
            tasks: BTreeMap::new(),
            checks: vec![],
            averages: vec![],
            ledger: vec![],
            judged: vec![],
            windows: BTreeSet::new(),
            home: vec![],
            away: vec![],
            records: vec![],
            points: vec![],
            closed: vec![],
            next: 1,
        }
    }

    fn start(start_with: u32) -> Self {
        let rounds = round_settings(ADAPTIVE, Evaluator::Coordinator);
        Self::new(Machine::new(settings(start_with, 0), rounds, published(0), None))
    }

    fn handle(&mut self, event: Event) {
        for action in self.machine.handle(self.now, event) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send { worker, message } => match message {
                Message::Round(round) => {
                    assert_eq!(
                        round.round,
                        self.machine.published().round,
                        "a round starts from what is published"
                    );
                    assert_eq!(round.base, self.machine.published().blocks[round.block as usize]);
                    assert_eq!(round.table, self.machine.published().table);
                    let steps = if round.round + 1 == ROUNDS { 7 } else { 10 };
                    assert_eq!(round.learning_rates.len(), steps);
                    *self.tasks.get_mut(&worker).unwrap() = Some(round);
                }
                Message::Judged(judged) => self.judged.push((worker, judged)),
                Message::Evaluate(task) => self.away.push((worker, task.round, task.batch)),
                _ => {}
            },
            Action::SendWindows { windows: Windows::Round { round, slot, .. }, .. } => {
                assert!(
                    self.windows.insert((round, slot)),
                    "no two replicas of a round have the same windows"
                );
            }
            Action::SendWindows { .. } => {}
            Action::CheckDelta { worker, published, .. } => self.checks.push((worker, published.round)),
            Action::Average { round, work, updates, checkpoint, .. } => {
                assert!(self.checks.is_empty(), "a round waits for what is being looked at");
                assert_eq!(round, self.machine.published().round);
                assert_eq!(checkpoint, [1, 3, 5].contains(&round), "every 20 steps, and at the end");
                assert_eq!(updates.len(), BLOCKS as usize);
                for work in &work {
                    self.ledger.push((round, work.worker, work.block));
                }
                self.averages.push((round, work.iter().map(|work| work.worker).collect()));
            }
            Action::Evaluate { published, batches } => {
                self.home.extend(batches.iter().map(|batch| (published.round, *batch)));
            }
            Action::Close { worker, refusal } => {
                self.tasks.remove(&worker);
                self.closed.push((worker, refusal));
            }
            Action::Record(record) => {
                // A round that was taken back begins again with the same windows.
                if let Record::RoundTakenBack { round } = record {
                    self.windows.retain(|(of, _)| *of != round);
                }
                self.records.push(record);
            }
            Action::Point(point) => self.points.push(point.step),
            other => panic!("an action of pipeline mode: {other:?}"),
        }
    }

    fn join(&mut self, memory_bytes: u64) -> WorkerId {
        let worker = WorkerId(self.next);
        self.next += 1;
        let hello =
            Hello { protocol: VERSION, build: "test".into(), kind: WorkerKind::Native, name: "w".into() };
        self.tasks.insert(worker, None);
        self.handle(Event::Joined { worker, hello, token: "t".into() });
        if self.tasks.contains_key(&worker) {
            self.say(worker, Message::Profile(profile(memory_bytes)));
        }
        worker
    }

    fn say(&mut self, worker: WorkerId, message: Message) {
        self.handle(Event::Said { worker, message });
    }

    fn leave(&mut self, worker: WorkerId) {
        self.tasks.remove(&worker);
        self.handle(Event::Gone { worker, why: "closed".into() });
    }

    /// The worker's word for what it was told to do.
    fn ready(&mut self, worker: WorkerId, round: u64, block: u32) {
        let ready = DeltaReady {
            round,
            block,
            blob: BlobRef::of(format!("{worker} {round}").as_bytes()),
            loss: 1.0,
            cross_entropy: 2.0,
            timings: Timings::default(),
            vitals: Vitals::default(),
        };
        self.say(worker, Message::DeltaReady(ready));
    }

    fn deliver(&mut self, worker: WorkerId) {
        if let Some(Some(round)) = self.tasks.get(&worker).cloned() {
            self.ready(worker, round.round, round.block);
        }
    }

    fn check(&mut self, outcome: impl Fn(WorkerId) -> Result<f64, DeltaRefusal>) {
        for (worker, round) in std::mem::take(&mut self.checks) {
            let outcome = outcome(worker);
            self.handle(Event::DeltaChecked { worker, round, outcome, traffic: Traffic { down: 5, up: 7 } });
        }
    }

    fn average(&mut self) {
        for (round, _) in std::mem::take(&mut self.averages) {
            let updated = (0..BLOCKS)
                .map(|block| self.ledger.iter().any(|(r, _, b)| *r == round && *b == block))
                .collect();
            let averaged = Averaged { updated, dropped: vec![] };
            self.handle(Event::Averaged { published: published(round + 1), averaged });
        }
    }

    fn measure(&mut self) {
        for (round, batch) in std::mem::take(&mut self.home) {
            self.handle(Event::Evaluated { round, batch, outcome: Ok(scores()) });
        }
    }

    fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
        self.handle(Event::Tick);
    }

    /// Everybody delivers and everything is accepted.
    fn round(&mut self) {
        for worker in self.tasks.keys().copied().collect::<Vec<_>>() {
            self.deliver(worker);
        }
        self.check(|_| Ok(1.0));
        self.average();
    }

    fn refused(&self) -> Vec<String> {
        let name = |record: &Record| match record {
            Record::DeltaRefused { refusal, .. } => Some(refusal.clone()),
            _ => None,
        };
        self.records.iter().filter_map(name).collect()
    }
}

fn scores() -> Scores {
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

#[test]
fn a_round_closes_when_all_are_in_and_the_run_ends_after_the_last() {
    let mut world = World::start(3);
    for _ in 0..2 {
        world.join(0);
    }
    assert_eq!(world.machine.phase(), Phase::Waiting);
    world.join(0);
    for round in 0..ROUNDS {
        assert_eq!(world.machine.published().round, round, "no time has passed: the rounds close early");
        world.round();
    }
    assert_eq!(world.machine.phase(), Phase::Finished);
    assert_eq!(world.ledger.len(), 3 * ROUNDS as usize);
    assert_eq!(world.points, [10, 20, 30, 40, 50, 57]);
    assert_eq!(world.machine.mean_participation(), Some(1.0));
    let totals = world.machine.totals();
    assert_eq!((totals.accepted, totals.refused, totals.bytes_down, totals.bytes_up), (18, 0, 90, 126));
}

#[test]
fn late_stale_foreign_and_second_deltas_are_refused_with_their_reason() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    let blocks: Vec<u32> = workers.map(|worker| world.tasks[&worker].as_ref().unwrap().block).to_vec();
    world.ready(workers[0], 1, blocks[0]);
    world.ready(workers[0], 0, (blocks[0] + 1) % BLOCKS);
    world.deliver(workers[0]);
    world.deliver(workers[0]);
    let late = world.join(0);
    world.ready(late, 0, 0);
    world.deliver(workers[1]);
    world.check(|_| Ok(1.0));
    // Two of three are in, above the floor: at the deadline the round closes without the third.
    world.pass(50.0);
    world.average();
    world.ready(workers[2], 0, blocks[2]);
    assert_eq!(
        world.refused(),
        ["delta_stale", "delta_other_block", "delta_twice", "delta_not_assigned", "delta_late"]
    );
    let told: Vec<WorkerId> = world
        .judged
        .iter()
        .filter(|(_, judged)| judged.refused.is_some())
        .map(|(worker, _)| *worker)
        .collect();
    assert_eq!(told, [workers[0], workers[0], workers[0], late, workers[2]], "each hears it at once");
    let missed =
        |record: &Record| matches!(record, Record::DeltaMissed { worker, .. } if *worker == workers[2]);
    assert_eq!(world.records.iter().filter(|record| missed(record)).count(), 1);
    assert_eq!(world.ledger.len(), 2);
}

#[test]
fn below_the_floor_a_round_goes_on_past_its_deadline_and_an_empty_one_keeps_the_blocks() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    world.deliver(workers[0]);
    world.check(|_| Ok(1.0));
    let deadline = world.machine.view(world.now).rounds.unwrap().deadline_seconds;
    world.pass(1.5 * deadline);
    assert!(world.averages.is_empty(), "one of three is below the floor");
    world.pass(3.0 * deadline);
    assert_eq!(world.averages.len(), 1, "but a round goes on for no more than four times its deadline");
    world.average();
    // The next round brings nothing at all.
    world.pass(200.0);
    assert_eq!(world.averages, [(1, vec![])]);
    world.average();
    assert_eq!(world.machine.published().round, 2);
    let closed = |record: &Record| match record {
        Record::RoundClosed { round: 1, accepted: 0, updated, .. } => updated.is_empty(),
        _ => false,
    };
    assert!(world.records.iter().any(closed));
    assert_eq!(world.points, [10], "a round without losses is no point of the curve");
}

#[test]
fn a_missed_deadline_makes_the_next_one_longer() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    let deadline = |world: &World| world.machine.view(world.now).rounds.unwrap().deadline_seconds;
    for _ in 0..2 {
        world.now += Duration::from_secs(1);
        world.round();
    }
    let before = deadline(&world);
    world.deliver(workers[0]);
    world.deliver(workers[1]);
    world.check(|_| Ok(1.0));
    world.pass(before + 0.01);
    world.average();
    assert!(deadline(&world) > 1.2 * before, "{} after {before}", deadline(&world));
}

#[test]
fn a_mute_worker_is_waited_for_a_few_rounds_and_no_longer() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    // Two are mute: one of three is below the floor.
    for round in 0..ROUNDS {
        world.deliver(workers[0]);
        world.check(|_| Ok(1.0));
        let deadline = world.machine.view(world.now).rounds.unwrap().deadline_seconds;
        world.pass(deadline + 0.01);
        assert_eq!(world.averages.len(), usize::from(round >= 3), "round {round}");
        if round < 3 {
            world.pass(100.0);
        }
        world.average();
    }
    assert_eq!(world.machine.phase(), Phase::Finished);
}

#[test]
fn whoever_goes_is_missed_and_whoever_comes_takes_part_from_the_next_round() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    world.deliver(workers[0]);
    world.check(|_| Ok(1.0));
    // What was accepted stays when its worker goes; what was not is missed.
    world.leave(workers[0]);
    world.leave(workers[1]);
    let newcomer = world.join(0);
    assert!(world.tasks[&newcomer].is_none());
    world.deliver(workers[2]);
    world.check(|_| Ok(1.0));
    assert_eq!(world.averages, [(0, vec![workers[0], workers[2]])], "all that are left are in");
    world.average();
    let at_work: BTreeSet<WorkerId> =
        world.tasks.iter().filter(|(_, task)| task.is_some()).map(|(worker, _)| *worker).collect();
    assert_eq!(at_work, BTreeSet::from([workers[2], newcomer]));
    // Everybody goes before anything has come: the round is as if it had never begun.
    for worker in at_work {
        world.leave(worker);
    }
    assert_eq!(world.machine.phase(), Phase::Waiting);
    assert!(world.records.iter().any(|record| matches!(record, Record::RoundTakenBack { round: 1 })));
    for _ in 0..3 {
        world.join(0);
    }
    assert_eq!(world.machine.phase(), Phase::Training);
    assert_eq!(world.machine.published().round, 1);
}

#[test]
fn a_worker_that_stays_keeps_its_moments_and_one_that_is_moved_or_fails_does_not() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    let fresh = |world: &World, worker: WorkerId| world.tasks[&worker].as_ref().unwrap().fresh;
    assert!(workers.iter().all(|worker| fresh(&world, *worker)));
    world.round();
    assert!(workers.iter().all(|worker| !fresh(&world, *worker)));
    let fault = Fault { epoch: 1, kind: FaultKind::NotFinite, detail: "NaN".into() };
    world.say(workers[1], Message::Fault(fault));
    world.round();
    assert_eq!(workers.map(|worker| fresh(&world, worker)), [false, true, false]);
    // Three faults in a row, and it is turned away.
    for round in [2, 3, 4] {
        if world.tasks.contains_key(&workers[1]) {
            let fault = Fault { epoch: round, kind: FaultKind::NotFinite, detail: "NaN".into() };
            world.say(workers[1], Message::Fault(fault));
            world.round();
        }
    }
    assert_eq!(world.closed.iter().map(|(worker, _)| *worker).collect::<Vec<_>>(), [workers[1]]);
}

#[test]
fn a_run_that_goes_on_does_not_wait_for_all_to_be_back() {
    let rounds = round_settings(ADAPTIVE, Evaluator::Coordinator);
    let mut world = World::new(Machine::new(settings(3, 0), rounds, published(2), None));
    let worker = world.join(0);
    assert_eq!(world.tasks[&worker].as_ref().unwrap().round, 2);
    // Only one of three blocks has somebody: the others take their turns later.
    for _ in 2..ROUNDS {
        world.round();
    }
    assert_eq!(world.machine.phase(), Phase::Finished);
}

#[test]
fn a_device_too_small_for_a_block_stands_by_and_the_organizer_hears_why() {
    let mut world = World::start(3);
    world.join(999);
    world.join(1000);
    world.join(0);
    assert_eq!(world.machine.phase(), Phase::Waiting);
    let reason = world.machine.view(world.now).reason;
    assert_eq!(reason, "2 of 3 workers are ready; 1 cannot give the 1 MB that a block takes");
    world.join(0);
    assert_eq!(world.machine.phase(), Phase::Training);
    assert!(world.tasks[&WorkerId(1)].is_none());
}

#[test]
fn pausing_holds_after_the_round_and_stopping_ends_after_it() {
    let mut world = World::start(3);
    for _ in 0..3 {
        world.join(0);
    }
    world.handle(Event::Asked(Command::Pause));
    world.round();
    assert_eq!((world.machine.phase(), world.machine.published().round), (Phase::Paused, 1));
    world.handle(Event::Asked(Command::Start));
    assert_eq!(world.machine.phase(), Phase::Training);
    world.handle(Event::Asked(Command::Stop));
    for worker in world.tasks.keys().copied().collect::<Vec<_>>() {
        world.deliver(worker);
    }
    world.check(|_| Ok(1.0));
    let (round, work) = world.averages[0].clone();
    assert_eq!((round, work.len()), (1, 3));
}

#[test]
fn evaluations_are_dealt_to_idle_workers_and_the_rest_is_done_at_home() {
    let rounds = round_settings(ADAPTIVE, Evaluator::Workers);
    let mut world = World::new(Machine::new(settings(3, 20), rounds, published(0), None));
    let workers = [0, 1, 2].map(|_| world.join(0));
    world.round();
    world.round();
    assert!(world.away.is_empty(), "all are at work");
    world.deliver(workers[0]);
    world.check(|_| Ok(1.0));
    assert_eq!(world.away, [(workers[0], 2, 0)], "one batch for whoever has nothing else to do");
    world.deliver(workers[1]);
    world.check(|_| Ok(1.0));
    // Its batch is free again when it goes; of another's nothing is taken.
    world.leave(workers[0]);
    let forged = Evaluated { round: 2, batch: 0, scores: scores() };
    world.say(workers[1], Message::Evaluated(forged));
    let held: Vec<_> = world.away.drain(..).collect();
    assert_eq!(held, [(workers[0], 2, 0), (workers[1], 2, 1)]);
    world.say(workers[1], Message::Evaluated(Evaluated { round: 2, batch: 1, scores: scores() }));
    assert_eq!(world.away, [(workers[1], 2, 0)]);
    world.say(workers[1], Message::Evaluated(Evaluated { round: 2, batch: 0, scores: scores() }));
    assert_eq!(world.machine.view(world.now).validation_loss, Some(3.0));
    for _ in 0..4 {
        world.round();
        world.away.clear();
    }
    // What nobody has brought of the last weights, the coordinator measures itself.
    while !world.home.is_empty() {
        world.measure();
    }
    assert_eq!(world.machine.phase(), Phase::Finished);
    assert_eq!(world.machine.view(world.now).rounds.unwrap().evaluation.unwrap().0, ROUNDS);
    assert_eq!(world.points, [10, 20, 30, 40, 50, 57]);
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Join,
    Leave(u8),
    Deliver(u8),
    /// Of another round or block.
    Forge(u8, u8),
    Check(bool),
    Average,
    Measure,
    Wait(u8),
    Pause,
    Start,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Join),
        1 => any::<u8>().prop_map(Step::Leave),
        8 => any::<u8>().prop_map(Step::Deliver),
        1 => any::<[u8; 2]>().prop_map(|[who, what]| Step::Forge(who, what)),
        6 => prop::bool::weighted(0.8).prop_map(Step::Check),
        4 => Just(Step::Average),
        2 => Just(Step::Measure),
        2 => (0..60u8).prop_map(Step::Wait),
        1 => Just(Step::Pause),
        2 => Just(Step::Start),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn under_any_order_each_delta_counts_once_and_the_run_comes_to_its_end(
        steps in vec(step(), 1..200),
        by_workers in any::<bool>(),
    ) {
        let evaluator = if by_workers { Evaluator::Workers } else { Evaluator::Coordinator };
        let rounds = round_settings(ADAPTIVE, evaluator);
        let mut world = World::new(Machine::new(settings(3, 20), rounds, published(0), None));
        let pick = |world: &World, who: u8| {
            let count = world.tasks.len();
            (count > 0).then(|| *world.tasks.keys().nth(usize::from(who) % count).unwrap())
        };
        for step in steps {
            match step {
                Step::Join => { world.join(0); }
                Step::Leave(who) => if let Some(worker) = pick(&world, who) { world.leave(worker) },
                Step::Deliver(who) => if let Some(worker) = pick(&world, who) { world.deliver(worker) },
                Step::Forge(who, what) => if let Some(worker) = pick(&world, who) {
                    world.ready(worker, u64::from(what % 8), u32::from(what / 8) % 5);
                },
                Step::Check(good) => world.check(|_| match good {
                    true => Ok(1.0),
                    false => Err(DeltaRefusal::Empty),
                }),
                Step::Average => world.average(),
                Step::Measure => world.measure(),
                Step::Wait(seconds) => world.pass(f64::from(seconds)),
                Step::Pause => world.handle(Event::Asked(Command::Pause)),
                Step::Start => world.handle(Event::Asked(Command::Start)),
            }
        }
        // Left alone with enough workers, it ends.
        world.handle(Event::Asked(Command::Start));
        while world.tasks.len() < 3 && world.machine.phase() != Phase::Finished {
            world.join(0);
        }
        for _ in 0..200 {
            world.round();
            world.measure();
            world.pass(30.0);
        }
        prop_assert_eq!(world.machine.phase(), Phase::Finished);
        let once: BTreeSet<(u64, WorkerId)> = world.ledger.iter().map(|(round, worker, _)| (*round, *worker)).collect();
        prop_assert_eq!(once.len(), world.ledger.len(), "no delta twice");
        prop_assert!(world.points.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", world.points);
        let closed: Vec<u64> = world
            .records
            .iter()
            .filter_map(|record| match record {
                Record::RoundClosed { round, .. } => Some(*round),
                _ => None,
            })
            .collect();
        prop_assert_eq!(closed, (0..ROUNDS).collect::<Vec<_>>());
    }
}
