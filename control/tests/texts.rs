//! Texts through the stages of a plan: hop after hop, once each, within their share of the time, and begun anew when a
//! plan ends.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::pipeline::{World, decoded, settings};
use control::{
    Settings,
    pipeline::{Event, Manifest, SnapshotPart, plan::Stages},
};
use protocol::{
    blob::BlobRef,
    message::Traversal,
    refusal::Refusal,
    spec::Part,
    view::{Phase, WorkerState},
    worker_id::WorkerId,
};

/// A run whose workers write texts; it trains, or does nothing else.
fn with_texts(trains: bool) -> Settings {
    let mut settings = settings(100_000, 2);
    (settings.run.trains, settings.run.cache_bytes) = (trains, 1 << 20);
    if !trains {
        settings.steps = 1 << 53;
    }
    settings
}

/// A world whose model is on two workers.
fn loaded(trains: bool) -> (World, [WorkerId; 2]) {
    let settings = with_texts(trains);
    let resume = (!trains).then(|| Manifest {
        steps_done: 0,
        epoch: 0,
        model: settings.run.model.clone(),
        micro_batches: 3,
        state: String::new(),
        parts: vec![SnapshotPart {
            blob: BlobRef::of(b"weights"),
            holds: vec![Part { embedding: true, first_layer: 0, end_layer: 4, head: true }],
            worker: WorkerId(0),
        }],
    });
    let mut world = World::new(settings, Stages::Exactly(2), resume);
    world.store.insert(BlobRef::of(b"weights").hash.0, vec![]);
    let workers = [world.join(1.0), world.join(1.0)];
    world.until(|world| world.texts_of.is_some());
    (world, workers)
}

/// One more worker, that has measured itself.
fn join_spare(world: &mut World) -> WorkerId {
    let spare = world.join(1.0);
    world.until(|world| world.run.core().roster.profiled_count() == 3);
    spare
}

fn hops(world: &World, number: u64) -> Vec<u32> {
    world.decodes.iter().filter(|(_, of)| of.number == number).map(|(_, of)| of.hop).collect()
}

#[test]
fn a_traversal_passes_every_hop_once_and_in_order() {
    for trains in [false, true] {
        let (mut world, _) = loaded(trains);
        for number in 1..4 {
            world.told(Event::Traverse { number });
            world.until(|world| world.traversed.contains(&number));
            world.pass(Duration::from_mins(1));
            assert_eq!(hops(&world, number), [0, 1], "trains: {trains}");
        }
        assert_eq!(world.traversed, [1, 2, 3]);
    }
}

#[test]
fn a_run_that_only_writes_texts_says_so_and_takes_no_step() {
    let (mut world, workers) = loaded(false);
    world.settle();
    world.pass(Duration::from_mins(10));
    assert_eq!((world.phase(), world.step()), (Phase::Serving, 0));
    let view = world.run.view(world.now);
    assert!(view.workers.iter().all(|worker| worker.state == WorkerState::Serving));
    world.leave(workers[0]);
    assert_eq!((world.phase(), world.texts_of), (Phase::Waiting, None));
}

#[test]
fn texts_take_their_share_of_the_time_and_no_more() {
    let (mut world, _) = loaded(true);
    // The stages take a second each; at a share of a fifth four more pass before the next traversal.
    world.told(Event::Traverse { number: 1 });
    world.until(|world| world.traversed == [1]);
    let ended = world.now;
    world.told(Event::Traverse { number: 2 });
    assert_eq!(hops(&world, 2), [] as [u32; 0]);
    let wake = world.run.wake_at(world.now).unwrap();
    assert_eq!(wake, ended + Duration::from_secs(4));
    world.now = wake.saturating_sub(Duration::from_millis(1));
    world.handle(control::Event::Tick);
    assert_eq!(hops(&world, 2), [] as [u32; 0]);
    world.now = wake;
    world.handle(control::Event::Tick);
    assert_eq!(hops(&world, 2), [0]);
}

#[test]
fn a_plan_that_ends_takes_its_traversal_with_it_and_the_next_plan_begins_what_is_asked_anew() {
    for trains in [false, true] {
        let (mut world, workers) = loaded(trains);
        let spare = join_spare(&mut world);
        let losses = world.losses;
        world.told(Event::Traverse { number: 1 });
        let (asked, of) = *world.decodes.last().unwrap();
        assert_eq!((asked, of.hop), (workers[0], 0));
        world.leave(workers[1]);
        assert!(world.losses > losses, "whoever has texts must hear that the caches are lost");
        // Asked before the next plan is there, it waits for it.
        world.told(Event::Traverse { number: 2 });
        world.until(|world| world.traversed == [2]);
        assert_eq!(hops(&world, 2), [0, 1], "trains: {trains}");
        assert!(world.decodes.iter().any(|(worker, _)| *worker == spare));
        // The first one's answer came too late, and nobody minds.
        world.say(workers[0], decoded(of, 1.0));
        assert!(world.closed.is_empty());
    }
}

#[test]
fn whoever_stays_keeps_its_stage() {
    for gone in 0..2 {
        let (mut world, workers) = loaded(false);
        let spare = join_spare(&mut world);
        let hops = |world: &World, worker: WorkerId| {
            world.peers[&worker].assignment.as_ref().map(|assignment| assignment.hops.clone())
        };
        let before = workers.map(|worker| hops(&world, worker));
        world.leave(workers[gone]);
        world.until(|world| world.texts_of.is_some());
        assert_eq!(hops(&world, workers[1 - gone]), before[1 - gone]);
        assert_eq!(hops(&world, spare), before[gone]);
    }
}

#[test]
fn an_answer_that_nobody_asked_for_is_refused() {
    let wrong: [fn(&mut Traversal); 3] = [|of| of.hop = 1, |of| of.number += 1, |of| of.hop = 7];
    for change in wrong {
        let (mut world, workers) = loaded(false);
        world.peers.get_mut(&workers[0]).unwrap().idle = true;
        world.told(Event::Traverse { number: 5 });
        let (_, mut of) = *world.decodes.last().unwrap();
        change(&mut of);
        world.say(workers[0], decoded(of, 0.1));
        assert!(matches!(world.closed[..], [(worker, Refusal::NotInPlan { .. })] if worker == workers[0]));
        assert_eq!(world.traversed, [] as [u64; 0]);
    }
    // A second time is once too often.
    let (mut world, workers) = loaded(false);
    world.told(Event::Traverse { number: 1 });
    let (_, of) = *world.decodes.last().unwrap();
    world.until(|world| world.traversed == [1]);
    world.say(workers[0], decoded(of, 0.1));
    assert_eq!(world.closed.len(), 1);
}

#[test]
fn a_worker_that_holds_a_hop_and_does_not_answer_is_replaced() {
    for trains in [false, true] {
        let (mut world, workers) = loaded(trains);
        join_spare(&mut world);
        // It trains on, and says nothing of texts.
        world.told(Event::Traverse { number: 1 });
        world.said.retain(|(_, message)| !matches!(message, protocol::message::Up::Decoded(_)));
        let epoch = world.epoch();
        world.pass(Duration::from_secs(25));
        assert_eq!(world.epoch(), epoch, "a device may have to compile its shaders");
        world.pass(Duration::from_mins(10));
        assert!(world.epoch() > epoch);
        world.told(Event::Traverse { number: 2 });
        world.until(|world| world.traversed == [2]);
        let holders: Vec<WorkerId> =
            world.decodes.iter().filter(|(_, of)| of.number == 2).map(|(worker, _)| *worker).collect();
        assert!(!holders.contains(&workers[0]), "trains: {trains}: {holders:?}");
    }
}

#[test]
fn a_traversal_that_nobody_wants_any_more_holds_nobody_up() {
    let (mut world, workers) = loaded(false);
    world.peers.get_mut(&workers[0]).unwrap().idle = true;
    world.told(Event::Traverse { number: 1 });
    world.told(Event::TraversalGone { number: 1 });
    let epoch = world.epoch();
    world.pass(Duration::from_mins(10));
    assert_eq!(world.epoch(), epoch, "nothing is owed");
}
