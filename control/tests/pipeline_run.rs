//! The run of pipeline mode under a virtual clock: joins, leaves, pauses, stops, snapshots and plans.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{
    LEASE, hello, model,
    pipeline::{World, expected, settings},
    profile,
};
use control::{
    Command, Event,
    action::Action,
    curve::Curve,
    pipeline::{
        Manifest, PipelineRun,
        plan::{self, Measured, Stages},
    },
};
use proptest::prelude::*;
use protocol::{
    message::{Down, Heartbeat, Hello, Up},
    refusal::Refusal,
    spec::ModelSpec,
    view::Phase,
    worker_id::WorkerId,
};

#[test]
fn a_single_worker_takes_every_step_and_the_run_finishes() {
    let mut world = World::auto(7, 1);
    assert_eq!(world.phase(), Phase::Waiting);
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(7));
    assert_eq!(world.points, (1..=7).collect::<Vec<_>>());
    let curve = world.run.curve();
    let measured: Vec<u64> = curve.iter().filter(|p| p.validation_loss.is_some()).map(|p| p.step).collect();
    assert_eq!(measured, [2, 4, 6, 7], "every second step, and the last");
    assert_eq!(world.run.snapshot().map(|m| m.steps_done), Some(7));
}

#[test]
fn the_first_plan_waits_for_the_workers_asked_for() {
    let mut world = World::auto(2, 2);
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Waiting);
    assert_eq!(world.reason(), "1 of 2 workers are ready");
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.manifests.last().unwrap().parts.len(), 2, "the model was split over both");
}

#[test]
fn a_newcomer_takes_over_layers_at_the_next_step_without_a_step_lost_or_repeated() {
    let mut world = World::auto(9, 1);
    world.join(1.0);
    for _ in 0..12 {
        world.happen(0);
    }
    assert_eq!(world.phase(), Phase::Training);
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.manifests.last().unwrap().parts.len(), 2);
    assert_eq!(world.final_history(), expected(9));
}

#[test]
fn a_newcomer_that_leaves_at_once_moves_nothing() {
    let mut world = World::auto(9, 1);
    world.join(1.0);
    for _ in 0..12 {
        world.happen(0);
    }
    let newcomer = world.join(1.0);
    while world.said.iter().any(|(worker, _)| *worker == newcomer) {
        let at = world.said.iter().position(|(worker, _)| *worker == newcomer).unwrap();
        let (worker, message) = world.said.remove(at).unwrap();
        world.say(worker, message);
    }
    world.leave(newcomer);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.plans().len(), 1, "{:?}", world.plans());
}

#[test]
fn a_much_slower_newcomer_is_kept_as_a_spare() {
    let mut world = World::auto(6, 1);
    world.join(1.0);
    world.join(1000.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.manifests.last().unwrap().parts.len(), 1);
}

#[test]
fn when_a_stage_vanishes_the_run_goes_on_from_the_last_snapshot() {
    let mut world = World::auto(8, 2);
    let first = world.join(1.0);
    world.join(1.0);
    while world.run.snapshot().is_none() {
        assert!(world.happen(0));
    }
    for _ in 0..3 {
        world.happen(0);
    }
    world.leave(first);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(8));
    assert_eq!(world.points, (1..=8).collect::<Vec<_>>());
}

#[test]
fn a_silent_worker_loses_its_lease_and_one_that_beats_does_not() {
    let mut world = World::auto(1000, 2);
    let silent = world.join(1.0);
    let alive = world.join(1.0);
    world.now += LEASE;
    world.say(alive, Heartbeat {});
    world.now += Duration::from_secs(1);
    world.handle(Event::Tick);
    assert_eq!(world.closed, [(silent, Refusal::LeaseEnded { seconds: 30 })]);
    assert!(world.peers.contains_key(&alive));
}

#[test]
fn pause_holds_at_a_step_boundary_and_start_goes_on() {
    let mut world = World::auto(20, 1);
    world.join(1.0);
    for _ in 0..9 {
        world.happen(0);
    }
    world.handle(Event::Asked(Command::Pause));
    world.settle();
    assert_eq!(world.phase(), Phase::Paused);
    let done = world.step();
    assert!(done < 20);
    world.handle(Event::Asked(Command::Start));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.final_history(), expected(20));
}

#[test]
fn stop_saves_the_weights_first() {
    let mut world = World::auto(1000, 1);
    world.join(1.0);
    for _ in 0..20 {
        world.happen(0);
    }
    world.handle(Event::Asked(Command::Stop));
    world.settle();
    assert_eq!(world.phase(), Phase::Stopped);
    let done = world.step();
    assert_eq!(world.final_history(), expected(done));
}

#[test]
fn stop_after_pause_ends_the_run() {
    for turns in 1..30 {
        let mut world = World::auto(1000, 1);
        world.join(1.0);
        for _ in 0..turns {
            world.happen(0);
        }
        world.handle(Event::Asked(Command::Pause));
        world.settle();
        world.handle(Event::Asked(Command::Stop));
        world.settle();
        assert_eq!(world.phase(), Phase::Stopped, "after {turns} turns");
    }
}

#[test]
fn a_resumed_run_goes_on_where_the_manifest_says() {
    let mut world = World::auto(7, 1);
    world.join(1.0);
    while world.run.snapshot().is_none() {
        world.happen(world.said.len()); // a commit, if there is one
    }
    let manifest = world.run.snapshot().unwrap().clone();
    assert_eq!(manifest.steps_done, 3);
    let mut resumed = World::new(settings(7, 1), Stages::Auto, Some(manifest.clone()));
    resumed.store = world.store.clone();
    resumed.join(1.0);
    resumed.settle();
    assert_eq!(resumed.phase(), Phase::Finished);
    assert_eq!(resumed.final_history(), expected(7));
    assert_eq!(resumed.points.first(), Some(&(manifest.steps_done + 1)));
}

#[test]
fn what_a_worker_may_not_say_closes_its_connection_with_words() {
    let mut world = World::auto(5, 1);
    let a = world.join(1.0);
    world.say(a, hello());
    assert!(matches!(&world.closed[..], [(w, Refusal::Unexpected { .. })] if *w == a));

    // No device does a layer in no time, and none that takes days is of use.
    for seconds in [1e-300, 1e6] {
        let mut world = World::auto(5, 1);
        let b = world.join(seconds);
        world.settle();
        assert!(matches!(&world.closed[..], [(w, Refusal::BadProfile { .. })] if *w == b));
    }
}

#[test]
fn the_run_is_full_at_its_limit_and_over_after_its_end() {
    let mut world = World::new(settings(1, 8), Stages::Exactly(8), None);
    for _ in 0..8 {
        world.join(1.0);
    }
    let ninth = world.join(1.0);
    assert_eq!(world.closed, [(ninth, Refusal::Full { workers: 8 })]);

    let mut over = World::auto(1, 1);
    over.join(1.0);
    over.settle();
    let late = over.join(1.0);
    assert_eq!(over.closed, [(late, Refusal::RunOver)]);
}

#[test]
fn a_worker_three_times_slower_causes_one_hand_over_and_no_more() {
    let mut world = World::auto(300, 2);
    let throttled = world.join(1.0);
    world.join(1.0);
    while world.step() < 20 {
        assert!(world.happen(0));
    }
    assert_eq!(world.plans().len(), 1);
    world.peers.get_mut(&throttled).unwrap().throttle = 3.0;
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.plans()[1..], ["the devices' speeds have changed"]);
    let layers = |w: WorkerId| {
        let hops = &world.peers[&w].assignment.as_ref().unwrap().hops;
        hops.iter().map(|h| h.part.end_layer - h.part.first_layer).sum::<u32>()
    };
    assert_eq!(layers(throttled), 1, "it keeps a small share");
    assert_eq!(world.final_history(), expected(300));
    let view = world.run.view(world.now);
    let worker = view.workers.iter().find(|w| w.id == throttled.0).unwrap();
    assert!((worker.pace - 3.0).abs() < 0.1, "{}", worker.pace);
}

#[test]
fn a_worker_whose_speed_wavers_causes_no_hand_over() {
    let mut world = World::auto(300, 2);
    let wavering = world.join(1.0);
    world.join(1.0);
    let mut turn = 0;
    while world.phase() != Phase::Finished {
        turn += 1;
        world.peers.get_mut(&wavering).unwrap().throttle = if turn % 40 < 8 { 2.5 } else { 1.0 };
        assert!(world.happen(0));
    }
    assert_eq!(world.plans().len(), 1, "{:?}", world.plans());
}

#[test]
fn a_spare_measures_itself_again_and_is_used_when_it_has_recovered() {
    let mut world = World::auto(1000, 1);
    world.join(1.0);
    let slow = world.join(1000.0);
    for _ in 0..40 {
        world.happen(0);
    }
    assert!(world.peers[&slow].assignment.is_none());
    world.peers.get_mut(&slow).unwrap().slow = 1.0;
    world.now += Duration::from_secs(61);
    for worker in world.peers.keys().copied().collect::<Vec<_>>() {
        world.handle(Event::Heard { worker });
    }
    world.handle(Event::Tick);
    for _ in 0..200 {
        world.happen(0);
    }
    assert!(world.peers[&slow].assignment.is_some());
    assert_eq!(world.plans().len(), 2, "{:?}", world.plans());
}

#[test]
fn m_is_chosen_when_nobody_says_and_stays() {
    let mut settings = settings(9, 2);
    settings.run.micro_batches = 0;
    let new = |resume| PipelineRun::new(settings.clone(), Stages::Exactly(2), resume, Curve::default());
    let mut run = new(None);
    assert_eq!(run.micro_batches(), 0);
    let mut assigned = vec![];
    for worker in [1, 2].map(WorkerId) {
        let hello = Hello { name: worker.to_string(), ..hello() };
        run.handle(Duration::ZERO, Event::Joined { worker, hello, token: String::new() });
        let message = Up::Profile(profile(1.0, 0, None));
        for action in run.handle(Duration::ZERO, Event::Said { worker, message }) {
            if let Action::Send { message: Down::Assign(assign), .. } = action {
                assigned.push(assign.0.micro_batches);
            }
        }
    }
    let chosen = run.micro_batches();
    // Two even stages: a bubble of 1 in M + 1.
    assert!((16..=32).contains(&chosen), "{chosen}");
    assert_eq!(assigned, [chosen, chosen]);
    let manifest = Manifest {
        steps_done: 3,
        epoch: 1,
        model: settings.run.model.clone(),
        micro_batches: chosen,
        state: String::new(),
        parts: vec![],
    };
    assert_eq!(new(Some(manifest)).micro_batches(), chosen, "a resumed run keeps it");
}

#[test]
fn a_model_too_large_for_all_devices_is_refused_in_gigabytes() {
    let mut run = settings(1, 1).run;
    run.model = ModelSpec { vocabulary: 50257, positions: 1024, width: 1024, heads: 16, ..model(24) };
    let laptop = |id| {
        let profile = profile(1.0, 4 << 30, None);
        Measured {
            worker: WorkerId(id),
            layer: profile.layer,
            embedding: profile.embedding,
            head_seconds: profile.head_seconds,
            memory_bytes: profile.memory_bytes,
            link: profile.link,
        }
    };
    let words = plan::make(&run, Stages::Auto, &[laptop(1), laptop(2)]).unwrap_err().to_string();
    assert!(words.starts_with("the model does not fit into the memory of 2 devices: it needs "), "{words}");
    assert!(words.contains(" GB more; ") && words.contains(" more like them or a narrower model"), "{words}");
    let plan = plan::make(&run, Stages::Auto, &(1..=8).map(laptop).collect::<Vec<_>>()).unwrap();
    for stage in &plan.stages {
        assert!(stage.memory_bytes <= 4 << 30, "{stage:?}");
    }
}

#[derive(Debug, Clone)]
enum Disturbance {
    Join(u8),
    Leave(u8),
    Pause,
    Start,
}

fn disturbances() -> impl Strategy<Value = Vec<(u8, Disturbance)>> {
    let one = prop_oneof![
        4 => (1u8..6).prop_map(Disturbance::Join),
        4 => any::<u8>().prop_map(Disturbance::Leave),
        1 => Just(Disturbance::Pause),
        1 => Just(Disturbance::Start),
    ];
    prop::collection::vec((0u8..40, one), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whoever comes and goes, whatever the order in which messages arrive: every micro-batch of every step is
    /// in the final weights exactly once, and the curve has every step once.
    #[test]
    fn every_micro_batch_counts_once_under_any_order_of_joins_and_leaves(
        plan in disturbances(),
        choices in prop::collection::vec(any::<usize>(), 64),
    ) {
        let steps = 10;
        let mut world = World::auto(steps, 1);
        world.join(1.0);
        let mut turn = 0;
        let mut choice = || {
            turn += 1;
            choices[turn % choices.len()]
        };
        for (turns, disturbance) in plan {
            for _ in 0..turns {
                world.happen(choice());
            }
            match disturbance {
                Disturbance::Join(slow) => {
                    world.join(f64::from(slow));
                }
                Disturbance::Leave(which) => {
                    let ids: Vec<_> = world.peers.keys().copied().collect();
                    if !ids.is_empty() {
                        world.leave(ids[usize::from(which) % ids.len()]);
                    }
                }
                Disturbance::Pause => world.handle(Event::Asked(Command::Pause)),
                Disturbance::Start => world.handle(Event::Asked(Command::Start)),
            }
        }
        world.handle(Event::Asked(Command::Start));
        world.join(1.0);
        for _ in 0..20_000 {
            if !world.happen(choice()) {
                break;
            }
        }
        prop_assert_eq!(world.phase(), Phase::Finished, "{}", world.reason());
        prop_assert_eq!(world.final_history(), expected(steps));
        prop_assert_eq!(&world.points, &(1..=steps).collect::<Vec<_>>());
    }
}
