//! Faults, disks and silent workers of block mode: none of them ends a run, and only who is at fault pays.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::block::{ROUNDS, World, published, round_settings, settings};
use control::{
    Command, Event, Record,
    block::{self, evaluation::Evaluator},
};
use protocol::{
    delta::DeltaRefusal,
    message::{EvaluationReport, Fault, FaultKind},
    refusal::Refusal,
    view::Phase,
};

fn fault(during: u64) -> Fault {
    Fault { during, kind: FaultKind::Device, detail: "lost".into() }
}

#[test]
fn a_run_whose_workers_are_all_suspended_waits_and_uses_up_no_round() {
    let mut world = World::start(1);
    let worker = world.join(0);
    let mut away = vec![];
    for _ in 0..8 {
        world.say(worker, fault(0));
        assert_eq!(world.run.phase(), Phase::Waiting);
        assert!(world.reason().contains("1 suspended after faults"), "{}", world.reason());
        let seconds = (1..1000).find(|_| {
            world.now += Duration::from_secs(1);
            world.handle(Event::Heard { worker });
            world.handle(Event::Tick);
            world.run.phase() == Phase::Training
        });
        away.push(seconds.unwrap());
    }
    assert_eq!(away, [10, 20, 40, 80, 160, 320, 600, 600]);
    assert_eq!((world.run.published().round, world.rounds_closed()), (0, vec![]));
    for _ in 0..ROUNDS {
        world.round();
    }
    assert_eq!(world.run.phase(), Phase::Finished);
    assert_eq!(world.closed, []);
}

#[test]
fn a_fault_of_a_round_that_is_over_is_passed_over_and_one_of_nothing_counts_against_its_sender() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    world.round();
    for _ in 0..5 {
        world.say(workers[0], fault(0));
    }
    assert_eq!(world.closed, []);
    for during in [7, 8, 1 << 53] {
        world.say(workers[0], fault(during));
    }
    assert!(matches!(&world.closed[..], [(who, Refusal::Unexpected { .. })] if *who == workers[0]));
    assert_eq!(world.run.published().round, 1);
}

#[test]
fn a_disk_that_does_not_take_the_weights_is_tried_again_and_the_run_goes_on() {
    let mut world = World::start(3);
    for _ in 0..3 {
        world.join(0);
    }
    for worker in world.tasks.keys().copied().collect::<Vec<_>>() {
        world.deliver(worker);
    }
    world.check(|_| Ok(1.0));
    for _ in 0..3 {
        let (round, work) = world.averages.pop().unwrap();
        assert_eq!((round, work.len()), (0, 3));
        let why = "no space left".to_string();
        world.told(block::Event::AverageFailed { round, why, again: true });
        assert!(world.reason().contains("no space left"), "{}", world.reason());
        world.pass(4.9);
        assert!(world.averages.is_empty());
        assert!(world.run.wake_at(world.now).unwrap() > world.now, "nobody spins meanwhile");
        world.pass(0.1);
        assert_eq!(world.averages.len(), 1);
    }
    // The same work went out again each time, and is counted once.
    world.ledger.truncate(3);
    world.average();
    while world.run.phase() != Phase::Finished {
        world.round();
    }
    assert_eq!(world.run.totals().accepted, 3 * ROUNDS);
}

#[test]
fn deltas_that_cannot_be_averaged_cost_their_round_and_an_average_of_none_is_not_tried_without_pause() {
    let mut world = World::start(3);
    for _ in 0..3 {
        world.join(0);
    }
    for worker in world.tasks.keys().copied().collect::<Vec<_>>() {
        world.deliver(worker);
    }
    world.check(|_| Ok(1.0));
    let failed = |world: &mut World| {
        let (round, work) = world.averages.pop().unwrap();
        let why = "not finite".to_string();
        world.told(block::Event::AverageFailed { round, why, again: false });
        work.len()
    };
    assert_eq!(failed(&mut world), 3);
    world.ledger.clear();
    assert_eq!(failed(&mut world), 0);
    assert!(world.averages.is_empty(), "there is nothing left to leave out: later");
    world.pass(5.0);
    assert_eq!(world.averages, [(0, vec![])]);
    world.average();
    assert_eq!((world.run.published().round, world.run.totals().accepted), (1, 0));
    for _ in 1..ROUNDS {
        world.round();
    }
    assert_eq!(world.run.phase(), Phase::Finished);
    assert_eq!(world.run.totals().accepted, 3 * (ROUNDS - 1));
}

#[test]
fn deltas_dropped_beside_the_others_are_refused_and_off_the_sums() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    for worker in workers {
        world.deliver(worker);
    }
    world.check(|_| Ok(1.0));
    world.averages.clear();
    let norm = DeltaRefusal::Norm { norm: 9.0, typical: 1.0, ratio: 9.0, limit: 5.0 };
    world.told(block::Event::Averaged {
        published: published(1),
        updated: vec![true, true, false],
        dropped: vec![(workers[2], norm)],
    });
    assert_eq!(world.refused(), ["delta_norm"]);
    let totals = world.run.totals();
    assert_eq!((totals.accepted, totals.refused), (2, 1));
}

#[test]
fn a_measurement_that_fails_is_one_less() {
    let mut world = World::new(settings(3, 20), round_settings(Evaluator::Coordinator), published(0));
    for _ in 0..3 {
        world.join(0);
    }
    for _ in 0..ROUNDS {
        world.round();
        for (round, batch) in std::mem::take(&mut world.by_coordinator) {
            let outcome = Err("out of memory".into());
            world.told(block::Event::Evaluated { round, batch, outcome });
        }
    }
    assert_eq!(world.run.phase(), Phase::Finished);
    assert_eq!(world.points, [10, 20, 30, 40, 50, 57], "the curve has every round");
    let failed = |record: &&Record| matches!(record, Record::EvaluationFailed { .. });
    assert_eq!(world.records.iter().filter(failed).count(), 3);
}

#[test]
fn a_worker_that_never_measures_its_batch_does_not_hold_back_the_curve() {
    let mut long = settings(3, 10);
    let mut rounds = round_settings(Evaluator::Workers);
    (long.steps, rounds.rounds) = (400, 40);
    long.validate_every = 200;
    let mut world = World::new(long, rounds, published(0));
    let workers = [0, 1, 2].map(|_| world.join(0));
    for _ in 0..20 {
        world.round();
    }
    assert_eq!(world.points.last(), Some(&190), "the point of the measured weights waits for their scores");
    for _ in 20..29 {
        // The first to deliver has nothing to do until the others have, and is given a batch.
        world.round();
    }
    assert!(world.by_workers.iter().all(|(_, round, _)| *round == 20) && !world.by_workers.is_empty());
    assert_eq!(world.points.last(), Some(&190));
    world.round();
    world.measure();
    assert_eq!(world.points.last(), Some(&300), "the coordinator has measured what nobody brought");
    // What comes late of a worker is no news.
    let (worker, round, batch) = world.by_workers[0];
    world.say(worker, EvaluationReport { round, batch, scores: common::block::scores() });
    assert_eq!(world.closed, []);
    assert!(workers.contains(&worker));
}

#[test]
fn a_disk_that_is_full_holds_the_next_round_until_it_is_not() {
    let mut world = World::start(3);
    for _ in 0..3 {
        world.join(0);
    }
    world.handle(Event::Storage(Err("no space left on the disk of the run".into())));
    world.round();
    assert_eq!((world.run.phase(), world.run.published().round), (Phase::Paused, 1));
    assert!(world.reason().contains("no space left on the disk"), "{}", world.reason());
    world.pass(900.0);
    assert_eq!(world.run.published().round, 1);
    world.handle(Event::Storage(Ok(())));
    assert_eq!(world.run.phase(), Phase::Training);
}

#[test]
fn a_coordinator_that_stood_still_makes_no_delta_late() {
    let mut world = World::start(3);
    for _ in 0..3 {
        world.join(0);
    }
    let hour = Duration::from_hours(1);
    world.now += hour;
    world.handle(Event::Stalled(hour));
    world.handle(Event::Tick);
    assert_eq!((world.closed.len(), world.averages.len()), (0, 0));
    world.round();
    assert_eq!(world.run.mean_participation(), Some(1.0));
    let last = world.run.view(world.now).rounds.unwrap().round_seconds.unwrap();
    assert!(last < 1.0, "{last}");
}

#[test]
fn start_does_not_wait_for_as_many_as_the_file_says_and_stop_ends_a_run_that_waits() {
    let mut world = World::start(4);
    world.join(0);
    assert_eq!(world.run.phase(), Phase::Waiting);
    world.handle(Event::Asked(Command::Start));
    assert_eq!(world.run.phase(), Phase::Training);

    let mut world = World::start(4);
    world.join(0);
    world.handle(Event::Asked(Command::Stop));
    assert_eq!(world.run.phase(), Phase::Stopped);
}

#[test]
fn a_stop_ends_the_run_when_the_open_round_loses_everybody() {
    let mut world = World::start(2);
    let workers = [0, 1].map(|_| world.join(0));
    world.handle(Event::Asked(Command::Stop));
    for worker in workers {
        world.leave(worker);
    }
    assert_eq!(world.run.phase(), Phase::Stopped);
}

#[test]
fn a_round_that_all_left_is_opened_again_with_whoever_is_there() {
    let mut world = World::start(1);
    let first = world.join(0);
    let second = world.join(0);
    world.leave(first);
    assert_eq!(world.tasks[&second].as_ref().map(|task| task.round), Some(0));
    assert!(world.rounds_closed().is_empty());
    let replicas = world.run.view(world.now).rounds.unwrap().blocks;
    assert_eq!(replicas.iter().map(|block| block.replicas).sum::<u32>(), 1);
}

#[test]
fn a_run_is_woken_when_its_round_may_close() {
    let mut world = World::start(3);
    let workers = [0, 1, 2].map(|_| world.join(0));
    world.deliver(workers[0]);
    world.deliver(workers[1]);
    world.check(|_| Ok(1.0));
    // By its own word alone the round closes: no look is in vain.
    let wake = world.run.wake_at(world.now).unwrap();
    assert!(wake > world.now);
    world.now = wake;
    world.handle(Event::Tick);
    assert_eq!(world.averages.len(), 1);
    assert_eq!(world.run.wake_at(world.now), None);
}

#[test]
fn a_worker_that_is_late_for_thousands_of_rounds_is_expected_again_once_it_comes() {
    let mut rounds = round_settings(Evaluator::Coordinator);
    rounds.rounds = 3000;
    rounds.local_steps = 1;
    let mut settings = settings(2, 0);
    settings.steps = 3000;
    settings.snapshot_every = 0;
    let mut world = World::new(settings, rounds, published(0));
    let workers = [0, 1].map(|_| world.join(0));
    for _ in 0..2500 {
        world.deliver(workers[0]);
        world.check(|_| Ok(1.0));
        let deadline = world.deadline();
        world.handle(Event::Heard { worker: workers[1] });
        world.pass(5.0 * deadline);
        world.average();
    }
    for _ in 0..40 {
        world.round();
    }
    let before = world.deadline();
    assert!(before.is_finite() && before <= 100.0, "{before}");
    for _ in 0..20 {
        world.round();
    }
    assert!(world.deadline() < 1.0, "{}", world.deadline());
}
