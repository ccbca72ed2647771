//! The simulator: the same for a seed, regimes in order, deadlines that adapt, hostile workers turned away.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;

use common::{Words, block_setup};
use control::{Record, Settings, block::deadline::DeadlinePolicy};
use engine::aggregation::Aggregator;
use protocol::{
    delta::DeltaEncoding,
    spec::{BlockSpec, ModelSpec, RunSpec},
};
use simulation::{Behaviour, BlockSetup, Outcome, Plan, Regime, SimulationError, Speed, predict};

const ADAPTIVE: DeadlinePolicy = DeadlinePolicy::Adaptive { target: 0.86, floor: 0.6, longest: 3600.0 };

/// A run of `blocks` blocks of one layer over so many local steps, measured at its end.
fn setup(blocks: u32, width: u32, heads: u32, sequences: u32, steps: u64, local_steps: u32) -> BlockSetup {
    let run = testkit::fixtures::block_run();
    let run = RunSpec {
        model: ModelSpec {
            vocabulary: 256,
            positions: width,
            width,
            heads,
            layers: blocks,
            tie_embeddings: false,
        },
        sequences,
        context: width,
        blocks: run.blocks.map(|spec| BlockSpec { count: blocks, ..spec }),
        ..run
    };
    let settings = common::settings(run, steps, 1);
    let mut learning_rate = settings.learning_rate;
    learning_rate.warmup_steps = 0;
    let settings = Settings { learning_rate, validate_every: steps, snapshot_every: steps, ..settings };
    block_setup(settings, local_steps, ADAPTIVE)
}

/// Two tiny blocks over so many rounds of two steps.
fn small(rounds: u64) -> BlockSetup {
    setup(2, 8, 1, 2, 2 * rounds, 2)
}

fn try_to(setup: &BlockSetup, plan: &Plan) -> Result<Outcome, SimulationError> {
    let windows = Words { seed: plan.seed, ..Words::of(&setup.settings) };
    simulation::run(setup, windows, plan, |_| {})
}

fn go(setup: &BlockSetup, plan: &Plan) -> Outcome {
    try_to(setup, plan).unwrap()
}

fn named(name: &str) -> Regime {
    Regime::named(name).unwrap()
}

#[test]
fn a_seed_gives_the_same_run_bit_for_bit_and_another_seed_another() {
    let setup = small(6);
    let plan = Plan::new(named("wan-mid"), 4, 7);
    let first = go(&setup, &plan);
    assert_eq!(first, go(&setup, &plan));
    // On another thread, beside another run.
    let beside = simulation::parallel::map(vec![7, 8], |seed| go(&setup, &Plan { seed, ..plan.clone() }));
    assert_eq!(first, beside[0]);
    assert!(first.scores.as_ref().unwrap().is_of_blocks(2));
    assert_ne!(first.state, beside[1].state);
    assert_ne!(first.seconds, beside[1].seconds);
}

#[test]
fn participation_falls_with_the_regime() {
    let setup = small(12);
    let participation = |name| {
        let of = |seed| go(&setup, &Plan::new(named(name), 6, seed)).participation;
        (1..=3).map(of).sum::<f64>() / 3.0
    };
    let order = ["lockstep", "mild", "wan-loose", "wan-mid", "wan-tight"].map(participation);
    assert_eq!(order[0], 1.0);
    assert!(order.windows(2).all(|pair| pair[0] >= pair[1]), "{order:?}");
}

#[test]
fn adaptive_deadlines_bring_in_whom_a_tight_one_misses() {
    let setup = small(30);
    let fixed = Plan::new(named("wan-tight"), 6, 1);
    let adaptive = Plan { deadline: Some(ADAPTIVE), ..fixed.clone() };
    let (fixed, adaptive) = (go(&setup, &fixed), go(&setup, &adaptive));
    assert!(fixed.participation < 0.86, "{}", fixed.participation);
    assert!(adaptive.participation >= 0.86, "{}", adaptive.participation);
    // A silent worker now and then does not make everybody wait ever longer.
    assert!(adaptive.round_seconds < 10.0 * fixed.round_seconds, "{}", adaptive.round_seconds);
}

#[test]
fn rounds_in_which_nobody_answers_keep_the_weights() {
    let setup = small(3);
    // Half of those away disconnect; with few rounds some seed has all of them silent.
    let absent = Regime { dropout: 1.0, ..named("mild") };
    let outcome = go(&setup, &Plan::new(absent, 2, 3));
    let present = go(&setup, &Plan::new(Regime { dropout: 0.0, ..absent }, 2, 3));
    assert_eq!(outcome.participation, 0.0);
    let states: BTreeSet<&String> = outcome.records.iter().filter_map(state).collect();
    assert_eq!(states.len(), 1, "the weights stay as they were");
    assert_ne!(outcome.state, present.state);
}

fn state(record: &Record) -> Option<&String> {
    match record {
        Record::RoundClosed { state, .. } => Some(state),
        _ => None,
    }
}

#[test]
fn zeros_copies_and_replays_are_refused_by_name() {
    let setup = small(4);
    for (behaviour, reason) in [
        (Behaviour::Zeros, "delta_empty"),
        (Behaviour::Copy, "delta_copy"),
        (Behaviour::Replay, "delta_copy"),
    ] {
        let plan = Plan { hostile: vec![behaviour], ..Plan::new(named("lockstep"), 4, 1) };
        let outcome = go(&setup, &plan);
        let refused: Vec<&String> = outcome.refusals.keys().collect();
        assert_eq!(refused, [reason], "{behaviour:?}");
        assert!(outcome.participation < 1.0);
        let unchecked = go(&setup, &Plan { checks: false, ..plan });
        assert_eq!(unchecked.participation, 1.0, "{behaviour:?} without checks");
    }
}

#[test]
fn one_hostile_of_five_and_two_of_seven_cost_little_under_a_robust_aggregator_or_under_the_checks() {
    // A block that all workers share, long enough to have learnt something.
    let score = |aggregator, workers, hostile: &[Behaviour], checks| {
        let mut setup = setup(1, 16, 2, 4, 60, 5);
        setup.rules.aggregator = aggregator;
        let plan = Plan { hostile: hostile.to_vec(), checks, ..Plan::new(named("lockstep"), workers, 1) };
        go(&setup, &plan).scores.map_or(f64::INFINITY, |scores| scores.one_draw)
    };
    for (workers, count) in [(5, 1), (7, 2)] {
        let honest = score(Aggregator::Mean, workers, &[], true);
        for behaviour in [Behaviour::SignFlip(10.0), Behaviour::Noise(10.0), Behaviour::Scale(100.0)] {
            let hostile = vec![behaviour; count];
            for aggregator in [Aggregator::Median, Aggregator::TrimmedMean { trim: 2 }] {
                let found = score(aggregator, workers, &hostile, false);
                assert!(
                    found < honest + 0.4,
                    "{count} of {workers}, {}, {aggregator:?}: {found}, {honest}",
                    behaviour.name()
                );
            }
            let checked = score(Aggregator::Mean, workers, &hostile, true);
            assert!(
                checked < honest + 0.4,
                "{count} of {workers}, {}, checks: {checked}, {honest}",
                behaviour.name()
            );
        }
        // Without either, one that turns its delta around ten times as long takes the model along.
        let broken = score(Aggregator::Mean, workers, &vec![Behaviour::SignFlip(10.0); count], false);
        assert!(!broken.is_finite() || broken > honest + 1.0, "{broken} beside {honest}");
    }
}

#[test]
fn sparse_deltas_keep_what_they_do_not_send() {
    let dense = small(3);
    let mut sparse = dense.clone();
    sparse.settings.run.blocks.as_mut().unwrap().delta = DeltaEncoding::TopK { per_mille: 50 };
    let dense = go(&dense, &Plan::new(named("lockstep"), 2, 1));
    let sparse = go(&sparse, &Plan::new(named("wan-tight"), 2, 1));
    assert!(sparse.bytes_up < 0.3 * dense.bytes_up, "{} against {}", sparse.bytes_up, dense.bytes_up);
    assert!(sparse.scores.unwrap().is_of_blocks(2));
}

#[test]
fn a_prediction_is_what_the_same_run_comes_to() {
    let mut setup = small(4);
    setup.rounds.deadline = DeadlinePolicy::Fixed { seconds: 100.0 };
    let speed = Speed { step_seconds: 0.5, latency: 0.1, down: 1e5, up: 1e5 };
    let slow = Speed { step_seconds: 1.0, ..speed };
    let prediction = predict(&setup, &[speed, slow]).unwrap();
    assert_eq!(prediction.participation, 1.0);
    // Two steps of a second, and eight ways, and the bytes.
    let bytes = (prediction.bytes_down + prediction.bytes_up) / 1e5;
    let expected = 2.0 + 0.8 + bytes;
    assert!((prediction.round_seconds - expected).abs() < 0.01, "{prediction:?}, not {expected}");
    let real = go(&setup, &Plan::new(Regime::constant(slow, 10.0), 2, 1));
    assert!((real.bytes_up - prediction.bytes_up).abs() < 1.0, "{} for {prediction:?}", real.bytes_up);
    assert!(
        (real.round_seconds - prediction.round_seconds).abs() < 0.01,
        "{} for {prediction:?}",
        real.round_seconds
    );
}

#[test]
fn a_run_that_cannot_be_simulated_says_why() {
    let nobody = try_to(&small(1), &Plan::new(named("mild"), 0, 1)).unwrap_err();
    assert_eq!(nobody.to_string(), "there are no workers; simulate at least 1");
    let mut pipeline = small(1);
    pipeline.settings.run.blocks = None;
    let words = try_to(&pipeline, &Plan::new(named("mild"), 1, 1)).unwrap_err().to_string();
    assert!(words.contains("set mode = \"block\""), "{words}");
    assert!(predict(&pipeline, &[Speed { step_seconds: 1.0, latency: 0.0, down: 1.0, up: 1.0 }]).is_err());
}

#[test]
fn behaviours_are_named_by_their_values() {
    assert_eq!(Behaviour::SignFlip(10.0).name(), "sign flip x10");
    assert_eq!(Behaviour::Scale(2.5).name(), "scale x2.5");
}
