//! Pipeline mode against a scripted coordinator.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    clock::{LOSS, UPDATE},
    coordinator::{Peer, whole},
    play, play_on,
};
use engine::{Device, parameters::ParameterSet};
use protocol::{
    blob::BlobRef,
    message::*,
    refusal::Refusal,
    spec::{Hop, Part, RunSpec, WeightSource},
    tab::SessionEvent,
};
use testkit::fixtures;
use worker::End;

/// Sends the micro-batches of a step; gives the report.
async fn step(peer: &Peer, run: &RunSpec, epoch: u64, step: u64) -> StepReport {
    for micro_batch in 0..run.micro_batches {
        peer.micro_batch(run, epoch, step, Pass::Train { micro_batch });
    }
    match peer.up().await {
        Up::StepReport(report) => report,
        other => panic!("a report was expected, and {other:?} came"),
    }
}

fn apply(epoch: u64, step: u64, snapshot: bool) -> Apply {
    Apply { epoch, step, clip_scale: 1.0, learning_rate: 1e-3, snapshot }
}

async fn ready(peer: &Peer) -> u64 {
    match peer.up().await {
        Up::Ready(ready) => ready.epoch,
        other => panic!("Ready was expected, and {other:?} came"),
    }
}

#[test]
fn a_step_is_reported_with_the_time_it_took_and_the_snapshot_lies_in_the_store() {
    let run = fixtures::run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        peer.assign_all(&run, 1, 0, WeightSource::Seed(3));
        assert_eq!(ready(&peer).await, 1);
        let first = step(&peer, &run, 1, 0).await;
        peer.send(apply(1, 0, true));
        let stored = match peer.up().await {
            Up::SnapshotReady(stored) => stored,
            other => panic!("a snapshot was expected, and {other:?} came"),
        };
        assert!(world.store.get(stored.blob).is_some());
        let second = step(&peer, &run, 1, 1).await;
        peer.send(Drain { reason: DrainReason::Finished });
        (first, stored, second)
    });
    let (first, stored, second) = played.script;
    assert_eq!(played.end, End::Over(DrainReason::Finished));
    assert_eq!((stored.epoch, stored.steps_done), (1, 1));
    // The head goes both ways in one, which counts as backward; the update counts with the step after it.
    assert_eq!(first.timings.forward, 0.0);
    assert!((first.timings.backward - 2.0 * LOSS).abs() < 1e-6, "{:?}", first.timings);
    assert!(first.timings.optimizer < 1e-6);
    assert!((second.timings.optimizer - UPDATE).abs() < 1e-6, "{:?}", second.timings);
    assert_eq!(first.losses.len(), 2);
    assert_eq!(first.status.memory_bytes, 4096);
    assert!(played.events.iter().any(|(_, event)| matches!(event, SessionEvent::Step { step: 1, .. })));
}

#[test]
fn a_step_equals_the_same_step_without_a_session() {
    let run = fixtures::run();
    let expected = {
        let run = run.clone();
        futures::executor::block_on(async move {
            let hops = [Hop { index: 0, part: run.model.whole() }];
            let parameters = ParameterSet::draw(&run.model, &hops, 3, &Device::Cpu);
            let mut stage = engine::gpt2::Stage::new(&run, &hops, &Device::Cpu, parameters).unwrap();
            let shape = [run.sequences as usize, run.context as usize];
            let ids = |shift: u32| -> Vec<u32> {
                (0..10u32).map(|i| (3 * i + shift) % run.model.vocabulary).collect()
            };
            for micro_batch in 0..run.micro_batches {
                let (pass, tokens) = (Pass::Train { micro_batch }, ids(0));
                let input = engine::gpt2::HopInput::Tokens(&tokens);
                stage.loss(0, pass, input, &ids(1), shape, 0.5).await.unwrap();
            }
            stage.apply(1.0, 1e-3).await.unwrap();
            BlobRef::of(&stage.export(run.moments).await.unwrap())
        })
    };
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        peer.assign_all(&run, 1, 0, WeightSource::Seed(3));
        ready(&peer).await;
        step(&peer, &run, 1, 0).await;
        peer.send(apply(1, 0, true));
        let Up::SnapshotReady(stored) = peer.up().await else { panic!("a snapshot was expected") };
        world.leave();
        stored.blob
    });
    assert_eq!(played.script, expected);
}

#[test]
fn the_device_is_measured_when_it_is_not_described() {
    let played = play_on(common::measured(), async move |world| {
        let peer = world.coordinator.accept().await;
        peer.welcome(&fixtures::run()).await;
        let profile = peer.profile().await;
        world.leave();
        profile
    });
    // Virtual time stands still while a real device computes: a coarse clock at its worst.
    assert_eq!(played.script.layer, PassSeconds { forward: 1e-7, backward: 1e-7 });
    let link = played.script.link.unwrap();
    assert!((link.round_trip_seconds - 0.01).abs() < 1e-6);
}

#[test]
fn a_part_that_the_worker_has_itself_is_not_downloaded_again() {
    let run = fixtures::run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        peer.assign_all(&run, 1, 0, WeightSource::Seed(3));
        ready(&peer).await;
        step(&peer, &run, 1, 0).await;
        peer.send(apply(1, 0, true));
        let Up::SnapshotReady(stored) = peer.up().await else { panic!("a snapshot was expected") };
        peer.send(SnapshotKept { steps_done: 1 });
        peer.close();
        let peer = world.coordinator.join(&run).await;
        peer.assign_all(&run, 2, 1, WeightSource::Snapshot(vec![stored.blob]));
        ready(&peer).await;
        let gets = world.store.gets.get();
        world.leave();
        gets
    });
    assert_eq!(played.script, 0);
    assert_eq!(played.end, End::Left);
}

#[test]
fn an_assignment_that_makes_no_sense_is_a_fault_and_the_worker_stays() {
    let run = fixtures::run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        let good = whole(&run, 5, 0, WeightSource::Seed(0));
        let part = good.hops[0].part.clone();
        let hop = |index, part: &Part| Hop { index, part: part.clone() };
        let mut bad = vec![];
        let mut with = |change: &dyn Fn(&mut protocol::spec::Assignment)| {
            let mut assignment = good.clone();
            change(&mut assignment);
            bad.push(assignment);
        };
        with(&|a| a.hops.clear());
        with(&|a| a.micro_batches = 0);
        with(&|a| a.hop_count = 0);
        with(&|a| a.hop_count = 2);
        with(&|a| a.hops = vec![hop(0, &part), hop(0, &part)]);
        with(&|a| a.hops[0].part.end_layer = 1000);
        with(&|a| a.hops[0].part.first_layer = 2);
        with(&|a| (a.hops[0].part.embedding, a.hops[0].part.head) = (false, false));
        with(&|a| a.weights = WeightSource::Snapshot(vec![]));
        let mut kinds = vec![];
        let count = bad.len();
        for assignment in bad {
            peer.send(Assign(assignment));
            match peer.up().await {
                Up::Fault(fault) => kinds.push((fault.during, fault.kind)),
                // An empty layer range before the head can be computed.
                Up::Ready(_) => kinds.push((5, FaultKind::Weights)),
                other => panic!("a fault was expected, and {other:?} came"),
            }
        }
        peer.send(Assign(good));
        ready(&peer).await;
        world.leave();
        (kinds, count)
    });
    let (kinds, count) = played.script;
    assert_eq!(kinds, vec![(5, FaultKind::Weights); count]);
    assert_eq!(played.end, End::Left);
}

#[test]
fn work_before_the_benchmark_is_a_fault() {
    let run = fixtures::run();
    let played = play(async move |world| {
        let peer = world.coordinator.accept().await;
        peer.welcome(&run).await;
        peer.assign_all(&run, 9, 0, WeightSource::Seed(0));
        let answer = peer.up().await;
        world.leave();
        answer
    });
    assert!(matches!(played.script, Up::Fault(Fault { during: 9, kind: FaultKind::Device, .. })));
}

#[test]
fn frames_of_other_plans_and_steps_are_passed_over_and_wrong_ones_are_a_fault() {
    let run = fixtures::run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        peer.assign_all(&run, 2, 0, WeightSource::Seed(3));
        ready(&peer).await;
        peer.micro_batch(&run, 1, 0, Pass::Train { micro_batch: 0 });
        peer.micro_batch(&run, 2, 7, Pass::Train { micro_batch: 0 });
        peer.send(apply(2, 0, false));
        peer.send(Revoke { epoch: 1 });
        let report = step(&peer, &run, 2, 0).await;
        assert_eq!((report.epoch, report.step), (2, 0));
        // The same micro-batch again.
        peer.micro_batch(&run, 2, 0, Pass::Train { micro_batch: 0 });
        let fault = peer.up().await;
        world.leave();
        fault
    });
    assert!(matches!(played.script, Up::Fault(Fault { during: 2, kind: FaultKind::BadTensor, .. })));
}

#[test]
fn numbers_that_are_not_finite_never_go_out() {
    let run = fixtures::run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        peer.assign_all(&run, 1, 0, WeightSource::Seed(3));
        ready(&peer).await;
        step(&peer, &run, 1, 0).await;
        // An absurd rate drives the weights out of range.
        peer.send(Apply { epoch: 1, step: 0, clip_scale: 1.0, learning_rate: 1e6, snapshot: false });
        let mut next = 1;
        let fault = loop {
            for micro_batch in 0..run.micro_batches {
                peer.micro_batch(&run, 1, next, Pass::Train { micro_batch });
            }
            match peer.up().await {
                Up::Fault(fault) => break fault,
                Up::StepReport(report) => {
                    assert!(report.squared_norm.is_finite());
                    peer.send(Apply {
                        epoch: 1,
                        step: next,
                        clip_scale: 1.0,
                        learning_rate: 1e6,
                        snapshot: false,
                    });
                    next += 1;
                }
                other => panic!("{other:?}"),
            }
            assert!(next < 100, "the weights stay finite for ever");
        };
        peer.refuse(Refusal::Removed);
        fault
    });
    assert_eq!(played.script.kind, FaultKind::NotFinite);
    assert!(matches!(played.end, End::Refused(_)));
}
