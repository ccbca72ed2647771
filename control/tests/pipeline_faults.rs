//! Faults, stalls, disks and suspensions of pipeline mode: none of them ends a run, and only who is at fault pays.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{
    pipeline::{World, expected, settings},
    profile,
};
use control::{Command, Event, Record, pipeline, pipeline::plan::Stages};
use protocol::{
    message::{Fault, FaultKind, Heartbeat, Ready, SnapshotReady, Up},
    refusal::Refusal,
    view::Phase,
    worker_id::WorkerId,
};

const SECOND: Duration = Duration::from_secs(1);

fn fault(world: &World, kind: FaultKind) -> Fault {
    Fault { during: world.epoch(), kind, detail: "it broke".into() }
}

/// Training, with the first report of the open step on its way.
fn reporting(world: &mut World) {
    world.until(|world| matches!(world.said.front(), Some((_, Up::StepReport(_)))));
}

fn count(world: &World, reason: &str) -> u64 {
    world.run.core().refusals.get(reason).copied().unwrap_or(0)
}

/// Seconds until another plan is made, in steps of one second in which nothing else happens.
fn seconds_to_plan(world: &mut World) -> u64 {
    let plans = world.plans().len();
    let planned = |_: &u64| {
        world.pass(SECOND);
        world.plans().len() > plans
    };
    (1..1000).find(planned).unwrap()
}

#[test]
fn a_fault_suspends_its_worker_for_ten_seconds_doubling_and_the_run_goes_on_by_itself() {
    let mut world = World::auto(500, 1);
    let worker = world.join_idle(1.0);
    let mut away = vec![];
    for kind in [FaultKind::NotFinite, FaultKind::Device, FaultKind::Weights].into_iter().cycle().take(8) {
        world.settle();
        assert_eq!(world.phase(), Phase::Loading);
        let epoch = world.epoch();
        world.say(worker, Ready { epoch });
        assert_eq!(world.phase(), Phase::Training);
        let fault = fault(&world, kind);
        world.say(worker, fault);
        assert_eq!(world.phase(), Phase::Waiting);
        let reason = world.reason();
        assert!(reason.contains("suspended after faults") && reason.contains("worker 1"), "{reason}");
        away.push(seconds_to_plan(&mut world));
    }
    assert_eq!(away, [10, 20, 40, 80, 160, 320, 600, 600]);
    assert_eq!(world.closed, []);
}

#[test]
fn whoever_stays_does_the_work_of_a_suspended_worker() {
    let mut world = World::auto(30, 2);
    let failing = world.join(1.0);
    let other = world.join(1.0);
    reporting(&mut world);
    let fault = fault(&world, FaultKind::Device);
    world.say(failing, fault);
    assert_eq!(world.planned(), [other]);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(30));
    assert_eq!(count(&world, "device"), 1);
}

#[test]
fn a_snapshot_forgives_a_fault() {
    let mut world = World::auto(1000, 1);
    let worker = world.join(1.0);
    for _ in 0..3 {
        reporting(&mut world);
        let fault = fault(&world, FaultKind::NotFinite);
        world.say(worker, fault);
        world.said.clear();
        assert_eq!(seconds_to_plan(&mut world), 10, "the one before has been forgiven");
        let before = world.run.snapshot().map(|snapshot| snapshot.steps_done);
        world.until(|world| world.run.snapshot().map(|snapshot| snapshot.steps_done) > before);
    }
}

#[test]
fn faults_count_only_from_who_holds_a_part() {
    let mut world = World::auto(30, 1);
    world.join(1.0);
    let spare = world.join(1000.0);
    reporting(&mut world);
    let epoch = world.epoch();
    let said = |during| Fault { during, kind: FaultKind::Device, detail: String::new() };
    // Of a plan that has ended: honest workers say so while a new one is under way.
    for _ in 0..10 {
        world.say(spare, said(epoch - 1));
    }
    assert_eq!(world.closed, []);
    world.say(spare, said(epoch));
    world.say(spare, said(epoch + 7));
    assert_eq!((world.closed.len(), world.epoch()), (0, epoch), "the plan stands");
    world.say(spare, said(1 << 53));
    assert!(matches!(&world.closed[..], [(who, Refusal::Unexpected { .. })] if *who == spare));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.plans().len(), 1);
}

/// Whoever meets NaN may have been sent it: the next plan has every frame read on its way, so that its sender is known.
#[test]
fn not_finite_numbers_are_excused_once_where_another_may_have_sent_them() {
    let mut world = World::new(settings(50, 2), Stages::Exactly(2), None);
    let workers = [world.join(1.0), world.join(1.0)];
    reporting(&mut world);
    let first = fault(&world, FaultKind::NotFinite);
    world.say(workers[1], first);
    assert_eq!(world.planned(), workers, "nobody is suspended");
    assert!(world.relay.as_ref().unwrap().verify_all);
    reporting(&mut world);
    let second = fault(&world, FaultKind::NotFinite);
    world.say(workers[1], second);
    assert_eq!(count(&world, "not_finite"), 2);
    assert!(world.reason().contains("suspended after faults"), "{}", world.reason());
}

#[test]
fn a_broken_tensor_is_excused_once_and_counts_where_every_frame_is_verified() {
    let mut world = World::auto(50, 1);
    let worker = world.join(1.0);
    reporting(&mut world);
    assert!(!world.relay.as_ref().unwrap().verify_all);
    let first = fault(&world, FaultKind::BadTensor);
    world.say(worker, first);
    world.said.clear();
    assert_eq!(world.phase(), Phase::Loading, "it is not suspended");
    assert!(world.relay.as_ref().unwrap().verify_all);
    let epoch = world.epoch();
    world.say(worker, Ready { epoch });
    let again = fault(&world, FaultKind::BadTensor);
    world.say(worker, again);
    assert_eq!(world.phase(), Phase::Waiting);
    assert_eq!(count(&world, "bad_tensor"), 2);
    world.said.clear();
    world.pass(10 * SECOND);
    world.until(|world| world.run.snapshot().is_some());
    // The plan that verifies is still in force: what arrives broken now was broken by its receiver.
    let third = fault(&world, FaultKind::BadTensor);
    world.say(worker, third);
    assert_eq!(world.phase(), Phase::Waiting);
    world.said.clear();
    world.pass(10 * SECOND);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(50));
    assert_eq!(world.points, (1..=50).collect::<Vec<_>>());
}

#[test]
fn exactly_n_stages_take_the_best_n_and_not_the_first() {
    let mut world = World::new(settings(5, 3), Stages::Exactly(2), None);
    world.join(50.0);
    let good = [world.join(1.0), world.join(1.0)];
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.planned(), good);
}

#[test]
fn a_claim_of_speed_counts_within_bounds_and_once_for_each_time_it_was_asked_for() {
    let mut world = World::auto(300, 2);
    world.join(1.0);
    let boaster = world.join(1e-7);
    reporting(&mut world);
    assert_eq!(world.planned().len(), 1, "fifty times as fast as its peer is all that counts");
    for step in 0..300 {
        if world.phase() == Phase::Finished {
            break;
        }
        world.until(|world| world.step() > step || world.phase() == Phase::Finished);
    }
    let view = world.run.view(world.now);
    let pace = view.workers.iter().find(|worker| worker.id == boaster.0).unwrap().pace;
    assert!((0.9..1.1).contains(&pace), "what keeps its promise has its pace: {pace}");

    let mut world = World::auto(300, 1);
    let worker = world.join(1.0);
    world.until(|world| world.phase() == Phase::Training);
    world.say(worker, profile(0.5, 0, None));
    assert!(matches!(&world.closed[..], [(who, Refusal::Unexpected { .. })] if *who == worker));
}

#[test]
fn a_worker_that_says_fast_and_slow_in_turn_does_not_keep_everybody_loading() {
    let mut world = World::auto(20, 1);
    world.join(1.0);
    let wavering = world.join(1000.0);
    world.until(|world| world.phase() == Phase::Training);
    for round in 0..200 {
        // It measures itself anew whenever it is asked, which is while it holds nothing.
        if let Some(peer) = world.peers.get_mut(&wavering) {
            peer.slow = if peer.slow > 1.0 { 0.5 } else { 1000.0 };
        }
        world.pass(31 * SECOND);
        for _ in 0..20 {
            world.happen(round);
        }
        if world.phase() == Phase::Finished {
            break;
        }
    }
    assert_eq!(world.phase(), Phase::Finished, "{}", world.reason());
    assert_eq!(world.final_history(), expected(20));
}

#[test]
fn whoever_owes_the_next_result_is_replaced_after_a_multiple_of_what_steps_took() {
    let mut world = World::auto(40, 2);
    let hung = world.join(1.0);
    let other = world.join(1.0);
    world.until(|world| world.step() == 5);
    // Its reports are lost from now on; its heart goes on beating.
    world.peers.get_mut(&hung).unwrap().idle = true;
    world.said.retain(|(worker, _)| *worker != hung);
    while world.happen(0) {}
    let epoch = world.epoch();
    // Steps took a second or two: twenty are the least that is waited.
    for _ in 0..15 {
        world.pass(SECOND);
    }
    assert_eq!(world.asked_owing, 0);
    for _ in 0..10 {
        world.pass(SECOND);
    }
    assert_eq!(
        (world.asked_owing, world.epoch()),
        (1, epoch),
        "it is asked once, and nothing happens meanwhile"
    );
    world.told(pipeline::Event::Owing(Some(hung)));
    assert!(world.epoch() > epoch);
    assert_eq!(world.planned(), [other]);
    assert_eq!(count(&world, "stalled"), 1);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(40));
    assert_eq!(world.closed, []);
}

#[test]
fn who_has_not_loaded_is_the_one_that_owes() {
    let mut world = World::auto(40, 2);
    let hung = world.join_idle(1.0);
    let other = world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Loading);
    while world.asked_owing == 0 {
        world.pass(SECOND);
    }
    // The relay knows nothing of loading.
    world.told(pipeline::Event::Owing(None));
    assert_eq!((world.planned(), count(&world, "stalled")), (vec![other], 1));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert!(world.peers.contains_key(&hung));
}

#[test]
fn a_result_that_comes_while_the_relay_is_asked_clears_its_worker() {
    let mut world = World::auto(40, 2);
    let late = world.join(1.0);
    world.join(1.0);
    world.until(|world| world.step() == 5);
    while !world.owes_report(late) {
        world.happen(0);
    }
    let report = world.work_of(late);
    while world.happen(0) {}
    while world.asked_owing == 0 {
        world.pass(SECOND);
    }
    let epoch = world.epoch();
    for message in report {
        world.say(late, message);
    }
    world.told(pipeline::Event::Owing(Some(late)));
    assert_eq!((world.epoch(), count(&world, "stalled")), (epoch, 0));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
}

#[test]
fn an_answer_of_the_relay_that_nobody_waits_for_changes_nothing() {
    let mut world = World::auto(4, 1);
    let worker = world.join(1.0);
    world.until(|world| world.phase() == Phase::Training);
    world.told(pipeline::Event::Owing(Some(worker)));
    world.told(pipeline::Event::Owing(Some(WorkerId(77))));
    world.settle();
    assert_eq!((world.phase(), world.plans().len()), (Phase::Finished, 1));
}

#[test]
fn a_part_that_is_no_weights_suspends_its_worker_and_the_steps_are_done_again() {
    let mut world = World::auto(9, 2);
    let culprit = world.join(1.0);
    let other = world.join(1.0);
    world.until(|world| !world.commits.is_empty());
    let steps_done = world.commits.pop_front().unwrap();
    world.told(pipeline::Event::CommitFailed {
        steps_done,
        why: "its hash is another".into(),
        culprit: Some(culprit),
    });
    assert_eq!(world.planned(), [other]);
    assert_eq!((world.step(), count(&world, "bad_snapshot")), (0, 1));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(9));
    assert_eq!(world.closed, []);
}

#[test]
fn a_snapshot_that_the_disk_does_not_take_is_written_again_while_the_run_goes_on() {
    let mut world = World::auto(1000, 1);
    world.join(1.0);
    world.until(|world| !world.commits.is_empty());
    let failed = |world: &mut World| {
        let steps_done = world.commits.pop_front().unwrap();
        let why = "no space left".to_string();
        world.told(pipeline::Event::CommitFailed { steps_done, why, culprit: None });
        steps_done
    };
    let steps_done = failed(&mut world);
    for _ in 0..10 {
        world.happen(0);
    }
    assert!(world.step() > steps_done && world.phase() == Phase::Training);
    assert!(world.reason().contains("no space left; it is tried again"), "{}", world.reason());
    assert!(world.commits.is_empty());
    world.pass(5 * SECOND);
    assert_eq!(failed(&mut world), steps_done);
    world.pass(SECOND);
    assert!(world.commits.is_empty(), "not before five seconds");
    world.pass(5 * SECOND);
    assert_eq!(world.commits, [steps_done]);
    world.until(|world| world.run.snapshot().is_some());
    assert_eq!(world.run.snapshot().unwrap().steps_done, steps_done);
    assert!(!world.reason().contains("no space"), "{}", world.reason());
    assert_eq!(world.plans().len(), 1, "nothing was done again");
}

#[test]
fn at_the_end_a_disk_that_takes_nothing_holds_the_run_with_words() {
    for stop in [false, true] {
        let mut world = World::auto(if stop { 1000 } else { 4 }, 1);
        world.join(1.0);
        if stop {
            world.until(|world| world.step() == 4);
            world.handle(Event::Asked(Command::Stop));
        }
        let end = loop {
            world.until(|world| !world.commits.is_empty());
            let steps_done = *world.commits.front().unwrap();
            if steps_done == world.step() && (stop || steps_done == 4) {
                break steps_done;
            }
            world.commits.pop_front();
            world.commit(steps_done);
        };
        for _ in 0..3 {
            let steps_done = world.commits.pop_front().unwrap();
            let why = "read-only file system".to_string();
            world.told(pipeline::Event::CommitFailed { steps_done, why, culprit: None });
            while world.happen(0) {}
            assert!(world.reason().contains("read-only file system"), "{}", world.reason());
            assert!(world.run.core().over.is_none());
            world.pass(5 * SECOND);
        }
        world.settle();
        assert_eq!(world.phase(), if stop { Phase::Stopped } else { Phase::Finished });
        assert_eq!(world.final_history(), expected(end));
    }
}

#[test]
fn a_disk_that_is_full_holds_the_run_at_the_next_boundary_until_it_is_not() {
    let mut world = World::auto(30, 1);
    world.join(1.0);
    reporting(&mut world);
    world.handle(Event::Storage(Err("no space left on the disk of the run".into())));
    world.settle();
    assert_eq!(world.phase(), Phase::Paused);
    assert!(world.reason().contains("no space left on the disk"), "{}", world.reason());
    let held_at = world.step();
    for _ in 0..100 {
        world.pass(30 * SECOND);
        world.settle();
    }
    assert_eq!((world.step(), world.plans().len()), (held_at, 1), "a hold is no stall");
    world.handle(Event::Storage(Ok(())));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(30));
}

#[test]
fn a_coordinator_that_stood_still_blames_nobody() {
    let mut world = World::auto(30, 1);
    let worker = world.join(1.0);
    reporting(&mut world);
    let hour = Duration::from_hours(1);
    world.now += hour;
    world.handle(Event::Stalled(hour));
    world.handle(Event::Tick);
    assert_eq!(world.closed, [], "nobody's lease has ended");
    world.say(worker, Heartbeat {});
    world.handle(Event::Tick);
    assert_eq!((world.asked_owing, world.plans().len()), (0, 1), "and nobody is late for the step");
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
}

#[test]
fn start_does_not_wait_for_as_many_as_the_file_says() {
    let mut world = World::auto(3, 4);
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Waiting);
    world.handle(Event::Asked(Command::Start));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
}

#[test]
fn work_is_accepted_once_a_snapshot_has_made_it_final() {
    let mut world = World::auto(7, 2);
    let workers = vec![world.join(1.0), world.join(1.0)];
    world.settle();
    let accepted: Vec<_> = world
        .records
        .iter()
        .filter_map(|record| match record {
            Record::WorkAccepted { first_step, steps_done, workers, micro_batches, .. } => {
                Some((*first_step, *steps_done, workers.clone(), *micro_batches))
            }
            _ => None,
        })
        .collect();
    // One after another, without a gap, to the end.
    assert_eq!(accepted.first().map(|first| first.0), Some(0));
    assert_eq!(accepted.last().map(|last| last.1), Some(7));
    assert!(accepted.windows(2).all(|pair| pair[0].1 == pair[1].0), "{accepted:?}");
    assert!(accepted.iter().all(|(_, _, who, m)| *who == workers && *m == 3), "{accepted:?}");
}

#[test]
fn a_stop_while_stages_load_ends_the_run_at_once() {
    let mut world = World::auto(50, 1);
    let worker = world.join_idle(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Loading);
    world.handle(Event::Asked(Command::Stop));
    assert_eq!(world.phase(), Phase::Stopped);
    // Nothing that comes afterwards changes anything.
    let fault = fault(&world, FaultKind::Device);
    world.say(worker, Ready { epoch: 1 });
    for _ in 0..5 {
        world.say(worker, fault.clone());
    }
    assert_eq!((world.phase(), world.closed.len()), (Phase::Stopped, 0));
}

#[test]
fn a_stop_before_any_plan_ends_the_run_at_once() {
    let mut world = World::auto(50, 2);
    world.join(1.0);
    world.settle();
    world.handle(Event::Asked(Command::Pause));
    assert_eq!(world.phase(), Phase::Paused);
    world.handle(Event::Asked(Command::Stop));
    assert_eq!(world.phase(), Phase::Stopped);
}

#[test]
fn a_pause_while_waiting_holds_the_first_plan() {
    let mut world = World::auto(3, 2);
    world.handle(Event::Asked(Command::Pause));
    world.join(1.0);
    world.join(1.0);
    world.settle();
    assert_eq!((world.phase(), world.plans().len()), (Phase::Paused, 0));
    world.handle(Event::Asked(Command::Start));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
}

#[test]
fn parts_that_arrive_in_a_pause_count_and_a_stop_then_ends_the_run() {
    let mut world = World::auto(50, 2);
    let workers = [world.join(1.0), world.join(1.0)];
    reporting(&mut world);
    world.handle(Event::Asked(Command::Pause));
    // One part comes, the other is lost on its way.
    let mut lost = None;
    while lost.is_none() {
        world.happen(0);
        let is_part = |said: &(WorkerId, Up)| said.0 == workers[1] && matches!(said.1, Up::SnapshotReady(_));
        lost = world.said.iter().position(is_part).and_then(|at| world.said.remove(at));
    }
    world.settle();
    assert_eq!(world.phase(), Phase::Paused);
    for _ in 0..100 {
        world.pass(10 * SECOND);
    }
    assert_eq!(world.asked_owing, 0, "in a pause nothing is waited for");
    world.handle(Event::Asked(Command::Stop));
    while world.asked_owing == 0 {
        world.pass(SECOND);
    }
    // Neither the relay nor a beating heart helps: the part is owed.
    world.told(pipeline::Event::Owing(None));
    world.settle();
    assert_eq!(world.phase(), Phase::Stopped, "{}", world.reason());
}

#[test]
fn the_last_snapshot_counts_although_its_worker_leaves_while_it_is_written() {
    let mut world = World::auto(4, 1);
    let worker = world.join(1.0);
    world.until(|world| world.commits.back() == Some(&4));
    // The last weights have been measured.
    while world.said.front().is_some() || world.owes_report(worker) {
        let keep = std::mem::take(&mut world.commits);
        world.happen(0);
        world.commits = keep;
    }
    world.leave(worker);
    assert_eq!(world.phase(), Phase::Waiting);
    world.join(1.0);
    assert_eq!(world.plans().len(), 1, "what is complete is not done again");
    world.settle();
    assert_eq!(world.phase(), Phase::Finished, "{}", world.reason());
    assert_eq!(world.final_history(), expected(4));
    assert_eq!(world.points, [1, 2, 3, 4]);
}

#[test]
fn the_last_steps_are_done_again_when_a_part_of_their_snapshot_went_with_its_worker() {
    let mut world = World::auto(5, 2);
    let going = world.join(1.0);
    world.join(1.0);
    world.until(|world| world.step() == 5);
    world.leave(going);
    assert_eq!(world.step(), 3, "back to the last complete snapshot");
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(5));
    assert_eq!(world.points, [1, 2, 3, 4, 5]);
}

#[test]
fn parts_of_others_of_other_steps_or_a_second_time_change_nothing() {
    let mut world = World::auto(9, 1);
    let worker = world.join(1.0);
    let spare = world.join(1000.0);
    world.until(|world| matches!(world.said.front(), Some((_, Up::SnapshotReady(_)))));
    let Some((_, Up::SnapshotReady(part))) = world.said.pop_front() else { unreachable!() };
    world.say(spare, part.clone());
    world.say(worker, SnapshotReady { steps_done: 1 << 53, ..part.clone() });
    world.say(worker, SnapshotReady { epoch: part.epoch + 1, ..part.clone() });
    world.say(worker, SnapshotReady { epoch: 0, ..part.clone() });
    assert!(world.commits.is_empty());
    world.say(worker, part.clone());
    world.say(worker, part);
    assert_eq!(world.commits.len(), 1);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.closed, []);
}

#[test]
fn a_worker_that_wants_part_of_the_work_during_a_pause_gets_it_afterwards() {
    let mut world = World::auto(30, 1);
    world.join(1.0);
    reporting(&mut world);
    world.handle(Event::Asked(Command::Pause));
    world.settle();
    let step = world.step();
    world.join(1.0);
    world.settle();
    assert_eq!((world.phase(), world.step(), world.plans().len()), (Phase::Paused, step, 1));
    world.handle(Event::Asked(Command::Start));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.plans().len(), 2);
    assert_eq!(world.final_history(), expected(30));
}

#[test]
fn a_part_that_is_lost_in_a_pause_is_owed_once_the_run_goes_on_to_another_plan() {
    let mut world = World::auto(50, 1);
    let holder = world.join(1.0);
    reporting(&mut world);
    world.handle(Event::Asked(Command::Pause));
    // The part of the snapshot that a pause asks for is lost on its way.
    let mut lost = None;
    while lost.is_none() {
        world.happen(0);
        let is_part = |said: &(WorkerId, Up)| said.0 == holder && matches!(said.1, Up::SnapshotReady(_));
        lost = world.said.iter().position(is_part).and_then(|at| world.said.remove(at));
    }
    world.settle();
    // A newcomer makes another plan worth while, which waits for that snapshot.
    world.join(1.0);
    world.settle();
    world.handle(Event::Asked(Command::Start));
    world.settle();
    assert_ne!(world.phase(), Phase::Paused, "nobody wants it to hold any more");
    while world.asked_owing == 0 {
        world.pass(SECOND);
    }
    world.told(pipeline::Event::Owing(None));
    world.settle();
    for _ in 0..30 {
        world.pass(SECOND);
        world.settle();
    }
    assert_eq!(world.phase(), Phase::Finished, "{}", world.reason());
    assert_eq!(world.final_history(), expected(50));
}
