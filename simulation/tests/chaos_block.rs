//! Runs of block mode that are disturbed at any point end, with weights that follow from the accepted deltas alone.
#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::BTreeSet, time::Duration};

use common::{ALL_KINDS, Mixed, anything, block_setup, on_all_processors, schedule_of, worker};
use control::block::{RoundManifest, deadline::DeadlinePolicy};
use engine::aggregation::server::{Rules, Server};
use protocol::view::Phase;
use simulation::{
    BlockSetup,
    block::BlockRuntime,
    disturbance::{Disturbance, What},
    harness::{Disk, Harness},
    network::{Network, Weather},
};

/// Seeded schedules of disturbances.
const SCHEDULES: u64 = 500;
/// Virtual time after which a run that is not over hangs.
const LIMIT: Duration = Duration::from_secs(20_000);
/// Frames come in up to 60 ms, and one in 40 requests for a file fails.
const WEATHER: Weather = Weather { jitter: 0.06, failing: Some(40) };
/// Rounds of two local steps.
const ROUNDS: u64 = 6;

type Chaos = Harness<BlockRuntime<Mixed>>;

fn setup() -> BlockSetup {
    let settings = common::settings(testkit::fixtures::block_run(), 2 * ROUNDS, 5);
    let deadline = DeadlinePolicy::Adaptive { target: 0.86, floor: 0.6, longest: 120.0 };
    block_setup(settings, 2, deadline)
}

fn harness(seed: u64, workers: u64, disturbances: Vec<Disturbance>) -> Chaos {
    let setup = setup();
    let windows = Mixed::of(&setup.settings);
    let runtime = BlockRuntime::new(setup, windows).keep_all();
    let mut harness = Harness::new(runtime, Network::new(seed, WEATHER), Disk::Seconds(0.12)).unwrap();
    harness.disturb(disturbances, worker());
    for _ in 0..workers {
        harness.join(worker()).unwrap();
    }
    harness
}

/// Every round counts once and every accepted delta at most once: done again from the deltas alone, the rounds lead to
/// the same weights.
fn each_delta_is_applied_at_most_once(harness: &Chaos, words: &str) {
    let manifests = harness.runtime().manifests();
    let rounds: Vec<u64> = manifests.iter().map(|manifest| manifest.published.round).collect();
    assert_eq!(rounds, (1..=ROUNDS).collect::<Vec<_>>(), "{words}");
    let mut applied = BTreeSet::new();
    let BlockSetup { settings, rules, .. } = setup();
    // What was accepted is not judged again: a coordinator that was killed has forgotten what it compared deltas with.
    let rules = Rules { suspicious: false, norm_limit: None, ..rules };
    let mut server = Server::draw(&settings.run, settings.seed, rules).unwrap();
    let mut published = server.files().unwrap().published(0);
    for RoundManifest { published: expected, work, totals, .. } in manifests {
        for work in work {
            assert!(applied.insert(work.delta.hash), "{words}: a delta was applied twice");
            let bytes = harness.with_network(|network| network.file(work.delta.hash).unwrap().clone());
            server.check(work.worker, work.block, &published, &bytes).unwrap();
        }
        let workers: Vec<_> = work.iter().map(|work| work.worker).collect();
        server.average(&workers).unwrap();
        published = server.files().unwrap().published(expected.round);
        assert_eq!(published, *expected, "{words}: round {}", expected.round);
        assert_eq!(totals.accepted, applied.len() as u64, "{words}: round {}", expected.round);
    }
}

#[test]
fn whatever_happens_the_run_finishes_and_each_delta_is_applied_at_most_once() {
    let mut undisturbed = harness(0, 1, vec![]);
    assert_eq!(undisturbed.run(LIMIT).unwrap(), Phase::Finished);
    let carried = undisturbed.carried();
    on_all_processors(SCHEDULES, |seed| {
        let (workers, disturbances) = schedule_of(seed, carried, 12, ALL_KINDS);
        let words = format!("seed {seed}, {workers} workers, {disturbances:?}");
        let mut harness = harness(seed, workers, disturbances);
        let mut phase = harness.run(LIMIT / 2).unwrap_or(Phase::Waiting);
        if phase != Phase::Finished {
            // Everybody may be dead.
            harness.calm();
            harness.join(worker()).unwrap();
            phase = harness.run(LIMIT).unwrap();
        }
        let reason = harness.decided().view(harness.now()).reason;
        assert_eq!(phase, Phase::Finished, "{words}: {reason}");
        each_delta_is_applied_at_most_once(&harness, &words);
    });
}

#[test]
fn one_of_two_workers_may_do_anything_at_any_message() {
    let mut plain = harness(1, 2, vec![]);
    plain.run(LIMIT).unwrap();
    let cases: Vec<(What, u64)> = anything()
        .into_iter()
        .flat_map(|what| (0..plain.carried()).step_by(5).map(move |after| (what, after)))
        .collect();
    on_all_processors(cases.len() as u64, |case| {
        let (what, after) = cases[case as usize];
        let mut harness = harness(1, 2, vec![Disturbance { after, what, whom: 0 }]);
        let words = format!("{what:?} after {after} messages");
        assert_eq!(harness.run(LIMIT).unwrap(), Phase::Finished, "{words}");
        each_delta_is_applied_at_most_once(&harness, &words);
    });
}

/// Plays two workers, of whom one, or the coordinator, is killed after any number of messages.
fn killed_at_every_message(what: What) {
    let play = |after: Option<u64>| {
        let kill = |after| Disturbance { after, what, whom: 0 };
        let mut harness = harness(1, 2, after.map(kill).into_iter().collect());
        let words = format!("{what:?} after {after:?} messages");
        assert_eq!(harness.run(LIMIT).unwrap(), Phase::Finished, "{words}");
        each_delta_is_applied_at_most_once(&harness, &words);
        harness.carried()
    };
    let carried = play(None);
    assert!(carried > 60, "{carried}");
    on_all_processors(carried, |after| {
        play(Some(after));
    });
}

#[test]
fn a_worker_may_die_at_every_single_message() {
    killed_at_every_message(What::Kill);
}

#[test]
fn a_coordinator_may_die_at_every_single_message() {
    killed_at_every_message(What::KillCoordinator(1));
}
