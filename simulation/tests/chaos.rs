//! Runs of pipeline mode that are disturbed at any point end with the weights of a run that was not.
#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use common::{ALL_KINDS, Mixed, anything, on_all_processors, schedule_of, worker};
use control::{Record, Settings, pipeline::plan::Stages};
use engine::{
    Device,
    parameters::{ParameterSet, Quantity},
};
use futures::executor::block_on;
use protocol::{
    spec::{Hop, ModelSpec, OptimizerSpec, RunSpec},
    view::Phase,
};
use simulation::{
    disturbance::{Disturbance, What},
    harness::{Disk, Harness},
    network::{Network, Weather},
    pipeline::PipelineRuntime,
};

/// Seeded schedules of disturbances.
const SCHEDULES: u64 = 500;
/// Virtual time after which a run that is not over hangs.
const LIMIT: Duration = Duration::from_secs(20_000);
/// Largest difference of a weight. Within a layer every split computes the same; only the sum of the squared norms
/// over stages is added up in another order, which moves the clip factor by a rounding error.
const TOLERANCE: f32 = 1e-5;
/// Frames come in up to 60 ms, and one in 40 requests for a file fails.
const WEATHER: Weather = Weather { jitter: 0.06, failing: Some(40) };

type Chaos = Harness<PipelineRuntime<Mixed>>;

fn settings() -> Settings {
    let run = testkit::fixtures::run();
    let run = RunSpec {
        name: "chaos".into(),
        model: ModelSpec { positions: 4, layers: 3, ..run.model },
        optimizer: OptimizerSpec { clip_norm: 0.5, ..run.optimizer },
        sequences: 1,
        context: 4,
        ..run
    };
    common::settings(run, 7, 5)
}

fn harness(seed: u64, stages: Stages, workers: u64, disturbances: Vec<Disturbance>) -> Chaos {
    let settings = settings();
    let windows = Mixed::of(&settings);
    let runtime = PipelineRuntime::new(settings, stages, windows);
    let mut harness = Harness::new(runtime, Network::new(seed, WEATHER), Disk::Seconds(0.12)).unwrap();
    harness.disturb(disturbances, worker());
    for _ in 0..workers {
        harness.join(worker()).unwrap();
    }
    harness
}

/// All weights at the end of a run, in order.
fn weights(harness: &Chaos, words: &str) -> Vec<f32> {
    let manifest = harness.runtime().committed().unwrap();
    assert_eq!(manifest.steps_done, settings().steps, "{words}");
    let file = |part: &control::pipeline::SnapshotPart| {
        harness.with_network(|network| network.file(part.blob.hash).unwrap().clone())
    };
    let parts: Vec<_> = manifest.parts.iter().map(file).collect();
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_slice()).collect();
    let model = settings().run.model;
    let whole = [Hop { index: 0, part: model.whole() }];
    let set = ParameterSet::import(&model, &whole, &parts, &Device::Cpu).unwrap();
    let read = |index| block_on(set.read(index, Quantity::Value)).unwrap().into_owned();
    (0..set.shapes().len()).flat_map(read).collect()
}

fn farthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn undisturbed() -> (Vec<f32>, u64) {
    let mut harness = harness(0, Stages::Auto, 1, vec![]);
    assert_eq!(harness.run(LIMIT).unwrap(), Phase::Finished);
    (weights(&harness, "undisturbed"), harness.carried())
}

#[test]
fn whatever_happens_the_weights_are_those_of_an_undisturbed_run() {
    let (expected, carried) = undisturbed();
    let stages = |record: &Record| matches!(record, Record::PlanMade { stages, .. } if stages.len() > 1);
    let mut several = harness(0, Stages::Auto, 4, vec![]);
    several.run(LIMIT).unwrap();
    assert!(several.records().iter().any(stages), "several workers share the model");
    let refusals = Mutex::new(BTreeSet::new());
    on_all_processors(SCHEDULES, |seed| {
        let (workers, disturbances) = schedule_of(seed, carried, 12, ALL_KINDS);
        let words = format!("seed {seed}, {workers} workers, {disturbances:?}");
        let mut harness = harness(seed, Stages::Auto, workers, disturbances);
        let mut phase = harness.run(LIMIT / 2).unwrap_or(Phase::Waiting);
        if phase != Phase::Finished {
            // Everybody may be dead.
            harness.calm();
            harness.join(worker()).unwrap();
            phase = harness.run(LIMIT).unwrap();
        }
        let reason = harness.decided().view(harness.now()).reason;
        assert_eq!(phase, Phase::Finished, "{words}: {reason}");
        let worst = farthest(&expected, &weights(&harness, &words));
        assert!(worst <= TOLERANCE, "{words}: a weight is off by {worst}");
        for record in harness.records() {
            if let Record::WorkerRefused { refusal, .. } = record {
                refusals.lock().unwrap().insert(refusal.clone());
            }
        }
    });
    let refusals = refusals.into_inner().unwrap();
    for reason in ["bad_tensor", "lease_ended", "malformed", "not_in_plan", "stalled"] {
        assert!(refusals.contains(reason), "no schedule has led to {reason}: {refusals:?}");
    }
}

#[test]
fn one_of_two_workers_may_do_anything_at_any_message() {
    let (expected, _) = undisturbed();
    let mut plain = harness(1, Stages::Auto, 2, vec![]);
    plain.run(LIMIT).unwrap();
    let cases: Vec<(What, u64)> = anything()
        .into_iter()
        .flat_map(|what| (0..plain.carried()).step_by(5).map(move |after| (what, after)))
        .collect();
    on_all_processors(cases.len() as u64, |case| {
        let (what, after) = cases[case as usize];
        let mut harness = harness(1, Stages::Auto, 2, vec![Disturbance { after, what, whom: 0 }]);
        let words = format!("{what:?} after {after} messages");
        assert_eq!(harness.run(LIMIT).unwrap(), Phase::Finished, "{words}");
        let worst = farthest(&expected, &weights(&harness, &words));
        assert!(worst <= TOLERANCE, "{words}: a weight is off by {worst}");
    });
}

#[test]
fn a_worker_may_die_at_every_single_message() {
    let (expected, _) = undisturbed();
    let disturbed = |after: Option<u64>| {
        let kill = |after| Disturbance { after, what: What::Kill, whom: 0 };
        let mut harness = harness(1, Stages::Auto, 2, after.map(kill).into_iter().collect());
        assert_eq!(harness.run(LIMIT).unwrap(), Phase::Finished, "killed after {after:?} messages");
        (weights(&harness, "one killed"), harness.carried())
    };
    let (_, carried) = disturbed(None);
    assert!(carried > 100);
    on_all_processors(carried, |after| {
        let worst = farthest(&expected, &disturbed(Some(after)).0);
        assert!(worst <= TOLERANCE, "killed after {after} messages: a weight is off by {worst}");
    });
}

#[test]
fn a_coordinator_killed_at_every_single_message_comes_back_to_the_same_state_hash() {
    let state = |after: Option<u64>| {
        let kill = |after| Disturbance { after, what: What::KillCoordinator(1), whom: 0 };
        let mut harness = harness(1, Stages::Exactly(2), 2, after.map(kill).into_iter().collect());
        assert_eq!(harness.run(LIMIT).unwrap(), Phase::Finished, "killed after {after:?} messages");
        (harness.runtime().committed().unwrap().state.clone(), harness.carried())
    };
    let (expected, carried) = state(None);
    on_all_processors(carried, |after| {
        // Not even the rounding differs: two stages before, two after.
        assert_eq!(state(Some(after)).0, expected, "killed after {after} messages");
    });
}
