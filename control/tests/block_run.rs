//! The run of block mode under any order of events: workers come, go, are late, fall silent and measure.
#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::block::{BLOCKS, ROUNDS, World, published, round_settings, scores, settings};
use control::{Command, Event, Record, block::evaluation::Evaluator};
use proptest::{collection::vec, prelude::*};
use protocol::{
    delta::DeltaRefusal,
    message::{EvaluationReport, Fault, FaultKind},
    view::Phase,
    worker_id::WorkerId,
};

#[test]
fn a_round_closes_when_all_are_in_and_the_run_ends_after_the_last() {
    let mut world = World::start(3);
    for _ in 0..2 {
        world.join(0);
    }
    assert_eq!(world.run.phase(), Phase::Waiting);
    world.join(0);
    for round in 0..ROUNDS {
        assert_eq!(world.run.published().round, round, "no time has passed: the rounds close early");
        world.round();
    }
    assert_eq!(world.run.phase(), Phase::Finished);
    assert_eq!(world.ledger.len(), 3 * ROUNDS as usize);
    assert_eq!(world.points, [10, 20, 30, 40, 50, 57]);
    assert_eq!(world.run.mean_participation(), Some(1.0));
    let totals = world.run.totals();
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
        .outcomes
        .iter()
        .filter(|(_, outcome)| outcome.refused.is_some())
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
    let deadline = world.deadline();
    world.pass(1.5 * deadline);
    assert!(world.averages.is_empty(), "one of three is below the floor");
    world.pass(3.0 * deadline);
    assert_eq!(world.averages.len(), 1, "but a round goes on for no more than four times its deadline");
    world.average();
    // The next round brings nothing at all.
    world.pass(200.0);
    assert_eq!(world.averages, [(1, vec![])]);
    world.average();
    assert_eq!(world.run.published().round, 2);
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
    for _ in 0..2 {
        world.now += Duration::from_secs(1);
        world.round();
    }
    let before = world.deadline();
    world.deliver(workers[0]);
    world.deliver(workers[1]);
    world.check(|_| Ok(1.0));
    world.pass(before + 0.01);
    world.average();
    assert!(world.deadline() > 1.2 * before, "{} after {before}", world.deadline());
}

#[test]
fn a_silent_worker_is_waited_for_a_few_rounds_and_no_longer() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    // Two are silent: one of three is below the floor.
    for round in 0..ROUNDS {
        world.deliver(workers[0]);
        world.check(|_| Ok(1.0));
        let deadline = world.deadline();
        world.pass(deadline + 0.01);
        assert_eq!(world.averages.len(), usize::from(round >= 3), "round {round}");
        if round < 3 {
            world.pass(100.0);
        }
        world.average();
    }
    assert_eq!(world.run.phase(), Phase::Finished);
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
    assert_eq!(world.run.phase(), Phase::Waiting);
    assert!(world.records.iter().any(|record| matches!(record, Record::RoundTakenBack { round: 1 })));
    for _ in 0..3 {
        world.join(0);
    }
    assert_eq!(world.run.phase(), Phase::Training);
    assert_eq!(world.run.published().round, 1);
}

#[test]
fn a_worker_that_stays_keeps_its_moments_and_one_that_is_moved_or_fails_does_not() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    let fresh = |world: &World, worker: WorkerId| world.tasks[&worker].as_ref().unwrap().fresh;
    assert!(workers.iter().all(|worker| fresh(&world, *worker)));
    world.round();
    assert!(workers.iter().all(|worker| !fresh(&world, *worker)));
    world.say(workers[1], Fault { during: 1, kind: FaultKind::NotFinite, detail: "NaN".into() });
    world.round();
    // For a while it is given nothing; the others keep theirs.
    let given = |world: &World, worker: WorkerId| world.tasks[&worker].as_ref().unwrap().round;
    assert_eq!(workers.map(|worker| given(&world, worker)), [2, 1, 2]);
    assert_eq!([workers[0], workers[2]].map(|worker| fresh(&world, worker)), [false, false]);
    world.now += Duration::from_secs(11);
    world.round();
    assert_eq!(workers.map(|worker| given(&world, worker)), [3; 3]);
    assert_eq!(workers.map(|worker| fresh(&world, worker)), [false, true, false]);
    assert_eq!(world.closed, []);
}

#[test]
fn a_run_that_goes_on_does_not_wait_for_all_to_be_back() {
    let mut world = World::new(settings(3, 0), round_settings(Evaluator::Coordinator), published(2));
    let worker = world.join(0);
    assert_eq!(world.tasks[&worker].as_ref().unwrap().round, 2);
    // Only one of three blocks has somebody: the others take their turns later.
    for _ in 2..ROUNDS {
        world.round();
    }
    assert_eq!(world.run.phase(), Phase::Finished);
}

#[test]
fn a_device_too_small_for_a_block_stands_by_and_the_organizer_hears_why() {
    let mut world = World::start(3);
    world.join(999);
    world.join(1000);
    world.join(0);
    assert_eq!(world.run.phase(), Phase::Waiting);
    let reason = world.reason();
    assert_eq!(reason, "2 of 3 workers are ready; 1 cannot give the 1 MB that a block takes");
    world.join(0);
    assert_eq!(world.run.phase(), Phase::Training);
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
    assert_eq!((world.run.phase(), world.run.published().round), (Phase::Paused, 1));
    world.handle(Event::Asked(Command::Start));
    assert_eq!(world.run.phase(), Phase::Training);
    world.handle(Event::Asked(Command::Stop));
    for worker in world.tasks.keys().copied().collect::<Vec<_>>() {
        world.deliver(worker);
    }
    world.check(|_| Ok(1.0));
    let (round, work) = world.averages[0].clone();
    assert_eq!((round, work.len()), (1, 3));
}

#[test]
fn evaluations_are_dealt_to_idle_workers_and_the_rest_is_done_by_the_coordinator() {
    let mut world = World::new(settings(3, 20), round_settings(Evaluator::Workers), published(0));
    let workers = [0, 1, 2].map(|_| world.join(0));
    world.round();
    world.round();
    assert!(world.by_workers.is_empty(), "all are at work");
    world.deliver(workers[0]);
    world.check(|_| Ok(1.0));
    assert_eq!(world.by_workers, [(workers[0], 2, 0)], "one batch for whoever has nothing else to do");
    world.deliver(workers[1]);
    world.check(|_| Ok(1.0));
    // Its batch is free again when it goes; of another's nothing is taken.
    world.leave(workers[0]);
    let forged = EvaluationReport { round: 2, batch: 0, scores: scores() };
    world.say(workers[1], forged);
    let held: Vec<_> = world.by_workers.drain(..).collect();
    assert_eq!(held, [(workers[0], 2, 0), (workers[1], 2, 1)]);
    world.say(workers[1], EvaluationReport { round: 2, batch: 1, scores: scores() });
    assert_eq!(world.by_workers, [(workers[1], 2, 0)]);
    world.say(workers[1], EvaluationReport { round: 2, batch: 0, scores: scores() });
    assert_eq!(world.run.view(world.now).validation_loss, Some(3.0));
    for _ in 0..4 {
        world.round();
        world.by_workers.clear();
    }
    // What nobody has brought of the last weights, the coordinator measures itself.
    while !world.by_coordinator.is_empty() {
        world.measure();
    }
    assert_eq!(world.run.phase(), Phase::Finished);
    assert_eq!(world.run.view(world.now).rounds.unwrap().evaluation.unwrap().0, ROUNDS);
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
        let mut world = World::new(settings(3, 20), round_settings(evaluator), published(0));
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
        while world.tasks.len() < 3 && world.run.phase() != Phase::Finished {
            world.join(0);
        }
        for _ in 0..200 {
            if world.run.phase() == Phase::Finished {
                break;
            }
            world.round();
            world.measure();
            world.pass(30.0);
        }
        prop_assert_eq!(world.run.phase(), Phase::Finished);
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
