//! Networks as they are: silence, deadlines, refusals, and the wish to leave in every state.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{
    Played, World,
    clock::LOCAL_STEP,
    coordinator::{Dial, LEASE_MS, Peer, ids},
    play,
};
use engine::denoiser::Weights;
use protocol::{message::*, refusal::Refusal, spec::RunSpec, spec::WeightSource, tab::SessionEvent};
use testkit::fixtures;
use worker::{End, platform::Later};

const LEASE: f64 = LEASE_MS as f64 / 1e3;

/// The pauses before reconnecting, with their reasons and the time they began.
fn reconnects<T>(played: &Played<T>) -> Vec<(f64, f64, String)> {
    let pause = |(at, event): &(f64, SessionEvent)| match event {
        SessionEvent::Reconnecting { in_seconds, reason } => Some((*at, *in_seconds, reason.clone())),
        _ => None,
    };
    played.events.iter().filter_map(pause).collect()
}

fn send_round(world: &World, peer: &Peer, run: &RunSpec, round: u64) {
    let weights = Weights::draw(run, 1).unwrap();
    let task = RoundTask {
        round,
        block: 0,
        base: world.store.keep(&weights.block_file(0).unwrap()),
        table: world.store.keep(&weights.table_file().unwrap()),
        seed: 1,
        learning_rates: vec![1e-3; 20],
        fresh: true,
        deadline_ms: 60_000,
    };
    let (windows, payload) = ids(&[20, run.sequences, run.context + 1], 0, run);
    peer.send_with(Round { task, windows }, &payload);
}

#[test]
fn silence_for_a_lease_is_a_lost_connection() {
    let played = play(async |world| {
        let peer = world.coordinator.join(&fixtures::run()).await;
        world.time.sleep(10.0 * LEASE).await;
        assert!(peer.next_is_pending(), "answered heartbeats keep the connection");
        assert!(peer.heartbeats() >= 29);
        peer.fall_silent();
        let silent_since = world.time.now();
        world.coordinator.accept().await;
        world.leave();
        silent_since
    });
    let [(at, _, reason)] = reconnects(&played).try_into().unwrap();
    let silent = at - played.script;
    assert!((0.6 * LEASE..=1.3 * LEASE).contains(&silent), "{silent} s");
    assert!(reason.contains("nothing was heard"), "{reason}");
}

#[test]
fn silence_is_noticed_in_a_transfer_and_in_training() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        send_round(&world, &peer, &run, 0);
        world.time.sleep(2.5 * LOCAL_STEP).await;
        peer.go_deaf();
        let training = world.time.now();
        let peer = world.coordinator.join(&run).await;
        world.store.stalled.set(true);
        let mut part = world.store.keep(b"weights");
        part.bytes += 1;
        peer.assign_all(&fixtures::run(), 1, 0, WeightSource::Snapshot(vec![part]));
        peer.go_deaf();
        let transfer = world.time.now();
        world.coordinator.accept().await;
        world.leave();
        [training, transfer]
    });
    let lost = reconnects(&played);
    assert_eq!(lost.len(), 2);
    for ((at, ..), since) in lost.iter().zip(played.script) {
        assert!((0.6 * LEASE..=1.3 * LEASE).contains(&(at - since)), "{} s", at - since);
    }
}

#[test]
fn a_long_computation_is_not_the_coordinators_silence() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        send_round(&world, &peer, &run, 0);
        let Up::DeltaReady(_) = peer.up().await else { panic!("a delta was expected") };
        peer.send(Drain { reason: DrainReason::Stopped });
    });
    assert!(played.ended_at > 10.0 * LEASE);
    assert_eq!(played.end, End::Over(DrainReason::Stopped));
    assert_eq!(reconnects(&played), []);
}

#[test]
fn tries_to_connect_have_a_deadline_and_pauses_that_grow() {
    let played = play(async |world| {
        world.coordinator.dials([Dial::Silence, Dial::Refuse, Dial::Refuse, Dial::Refuse]);
        world.coordinator.join(&fixtures::run()).await;
        world.leave();
    });
    let pauses = reconnects(&played);
    assert_eq!(pauses.len(), 4);
    assert!(pauses[0].2.contains("did not answer") && pauses[0].0 <= 20.0, "{pauses:?}");
    for ((_, pause, _), full) in pauses.iter().zip([0.5, 1.0, 2.0, 4.0]) {
        assert!((0.5 * full..=full).contains(pause), "{pauses:?}");
    }
}

#[test]
fn a_coordinator_that_does_not_answer_hello_is_given_up() {
    let played = play(async |world| {
        let _open = world.coordinator.accept().await;
        world.coordinator.join(&fixtures::run()).await;
        world.leave();
    });
    let [(at, ..)] = reconnects(&played).try_into().unwrap();
    assert!(at <= 30.0);
}

#[test]
fn a_refusal_says_when_to_try_again() {
    for (refusal, pause) in [
        (Refusal::Full { workers: 3 }, Some(15.0..=30.0)),
        (Refusal::LeaseEnded { seconds: 15 }, Some(0.0..=1.0)),
        (Refusal::Crowded { detail: "too many".into(), seconds: 40 }, Some(20.0..=40.0)),
        (Refusal::Removed, None),
        (Refusal::RunOver, None),
        (Refusal::Version { theirs: 2, ours: 3 }, None),
    ] {
        let words = refusal.to_string();
        assert_eq!(refusal.retry_after().is_some(), pause.is_some());
        let expected = pause.clone();
        let played = play(async move |world| {
            let peer = world.coordinator.accept().await;
            peer.refuse(refusal);
            if expected.is_some() {
                world.coordinator.join(&fixtures::run()).await;
                world.leave();
            }
        });
        match pause {
            Some(range) => {
                let [(_, pause, reason)] = reconnects(&played).try_into().unwrap();
                assert!(range.contains(&pause), "{reason}: {pause} s");
                assert_eq!(reason, words);
            }
            None => assert_eq!(played.end, End::Refused(words)),
        }
    }
    assert_eq!(Refusal::Full { workers: 1 }.retry_after(), Some(Duration::from_secs(30)));
}

#[test]
fn a_refusal_counts_even_where_the_connection_closed_before_it_was_read() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        send_round(&world, &peer, &run, 0);
        // In the middle of a local step.
        world.time.sleep(0.5 * LOCAL_STEP).await;
        peer.refuse(Refusal::Removed);
    });
    assert_eq!(played.end, End::Refused(Refusal::Removed.to_string()));
}

#[test]
fn uploads_that_no_proxy_lets_through_end_the_session_in_words() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        world.store.largest_piece.set(100);
        let peer = world.coordinator.join(&run).await;
        send_round(&world, &peer, &run, 0);
    });
    let End::Failed(words) = &played.end else { panic!("{:?}", played.end) };
    assert!(words.contains("413"), "{words}");
    assert!(matches!(played.events.last(), Some((_, SessionEvent::Failed { .. }))));
}

#[test]
fn a_store_that_asks_to_wait_is_waited_for_and_the_session_goes_on() {
    for (status, retry_after, pause) in [(429, Some("7"), 7.0), (503, None, 5.0), (507, Some("5"), 5.0)] {
        let later = Later::of(status, retry_after).unwrap();
        let run = fixtures::block_run();
        let played = play(async move |world| {
            let peer = world.coordinator.join(&run).await;
            // Far more often than a request that fails is made again: first for the weights, then for the delta.
            world.store.asks_to_wait.set(Some((50, later)));
            let asked = world.time.now();
            send_round(&world, &peer, &run, 0);
            while world.store.asks_to_wait.get().is_some() {
                world.time.sleep(0.1).await;
            }
            let fetched = world.time.now();
            world.store.asks_to_wait.set(Some((50, later)));
            let Up::DeltaReady(_) = peer.up().await else { panic!("a delta was expected") };
            let stored = world.time.now();
            peer.send(Drain { reason: DrainReason::Stopped });
            [fetched - asked, stored - fetched]
        });
        assert_eq!(played.end, End::Over(DrainReason::Stopped), "{status}");
        assert_eq!(reconnects(&played), [], "{status}");
        // The last of those requests is answered before its pause.
        assert!(played.script.iter().all(|took| *took >= 49.0 * pause), "{status}: {:?}", played.script);
    }
    assert_eq!(Later::of(200, Some("7")), None);
    assert_eq!(Later::of(503, Some("86400")).unwrap().seconds, 120);
}

#[test]
fn whoever_leaves_is_gone_within_two_seconds_in_every_state() {
    let run = fixtures::run;
    let block = fixtures::block_run;
    let leaves = |name: &str, script: Box<dyn Fn(World) -> futures::future::LocalBoxFuture<'static, ()>>| {
        let played = play(async move |world: World| {
            script(world.clone()).await;
            let asked = world.time.now();
            world.leave();
            asked
        });
        assert_eq!(played.end, End::Left, "{name}");
        let took = played.ended_at - played.script;
        assert!(took <= 2.0, "{name}: {took} s");
        assert!(matches!(played.events.last(), Some((_, SessionEvent::Left))), "{name}");
    };
    macro_rules! state {
        ($name:expr, $world:ident, $body:block) => {
            leaves($name, Box::new(move |$world: World| Box::pin(async move { $body })))
        };
    }
    state!("before anything", _world, {});
    state!("connecting", world, {
        world.coordinator.dials([Dial::Silence]);
        world.time.sleep(1.0).await;
    });
    state!("waiting to connect again", world, {
        world.coordinator.dials([Dial::Refuse; 8]);
        world.time.sleep(20.0).await;
    });
    state!("waiting because the run is full", world, {
        world.coordinator.accept().await.refuse(Refusal::Full { workers: 2 });
        world.time.sleep(1.0).await;
    });
    state!("waiting for the welcome", world, {
        world.coordinator.accept().await;
        world.time.sleep(1.0).await;
    });
    state!("measuring the link", world, {
        let peer = world.coordinator.accept().await;
        peer.welcome(&run()).await;
        peer.send(Benchmark {});
        world.time.sleep(1.0).await;
    });
    state!("without work", world, {
        world.coordinator.join(&run()).await;
        world.time.sleep(100.0).await;
    });
    state!("fetching weights", world, {
        let peer = world.coordinator.join(&run()).await;
        world.store.stalled.set(true);
        let part = world.store.keep(b"weights");
        peer.assign_all(&run(), 1, 0, WeightSource::Snapshot(vec![part]));
        world.time.sleep(1.0).await;
    });
    state!("in a micro-batch", world, {
        let peer = world.coordinator.join(&run()).await;
        peer.assign_all(&run(), 1, 0, WeightSource::Seed(1));
        peer.micro_batch(&run(), 1, 0, Pass::Train { micro_batch: 0 });
        world.time.sleep(1.0).await;
    });
    state!("waiting for the next micro-batch", world, {
        let peer = world.coordinator.join(&run()).await;
        peer.assign_all(&run(), 1, 0, WeightSource::Seed(1));
        world.time.sleep(5.0).await;
    });
    state!("in a local step", world, {
        let peer = world.coordinator.join(&block()).await;
        send_round(&world, &peer, &block(), 0);
        world.time.sleep(1.5 * LOCAL_STEP).await;
    });
    state!("storing a delta", world, {
        let peer = world.coordinator.join(&block()).await;
        send_round(&world, &peer, &block(), 0);
        world.time.sleep(LOCAL_STEP).await;
        world.store.stalled.set(true);
        while world.store.puts.get() == 0 {
            world.time.sleep(0.1).await;
        }
    });
    state!("towards a coordinator that takes nothing more", world, {
        let peer = world.coordinator.join(&run()).await;
        peer.go_deaf();
        world.time.sleep(1.0).await;
    });
}

#[test]
fn the_coordinator_is_told_when_a_worker_leaves() {
    let played = play(async |world| {
        let peer = world.coordinator.join(&fixtures::run()).await;
        world.leave();
        let last = peer.up().await;
        assert!(peer.next().await.is_none(), "and the connection is closed");
        last
    });
    assert!(matches!(played.script, Up::Leaving(_)));
}
