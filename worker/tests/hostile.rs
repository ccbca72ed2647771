//! A coordinator that is wrong or hostile: the session ends in words or goes on, and never panics or hangs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    World,
    coordinator::{Dial, Peer, ids, whole},
    play,
};
use engine::denoiser::Weights;
use proptest::{collection::vec, prelude::*};
use protocol::{
    blob::{BlobHash, BlobRef},
    frame,
    message::*,
    spec::{RunSpec, WeightSource},
    tab::SessionEvent,
    tensor::{Encoding, encode_floats},
};
use testkit::fixtures;
use worker::End;

fn welcome(run: RunSpec) -> Welcome {
    Welcome { worker: 1, token: "token".into(), run, heartbeat_ms: 5_000, lease_ms: 15_000 }
}

#[test]
fn a_run_of_absurd_sizes_is_refused_in_words_before_anything_is_allocated() {
    let sizes: [fn(&mut RunSpec); 9] = [
        |run| run.model.width = 1 << 24,
        |run| run.model.vocabulary = 1 << 24,
        |run| (run.model.positions, run.context) = (1 << 24, 1 << 24),
        |run| run.sequences = 1 << 24,
        |run| run.model.heads = 0,
        |run| run.model.heads = 3,
        |run| run.model.vocabulary = 0,
        |run| run.context = run.model.positions + 1,
        |run| run.context = 0,
    ];
    for (number, change) in sizes.into_iter().enumerate() {
        let mut run = fixtures::run();
        run.model.width *= if number == 1 { 1 << 12 } else { 1 };
        run.model.heads = if number == 3 { 8 } else { run.model.heads };
        if number == 3 {
            (run.model.positions, run.context) = (1 << 12, 1 << 12);
        }
        change(&mut run);
        let played = play(async move |world| {
            let peer = world.coordinator.accept().await;
            peer.send(welcome(run));
        });
        let End::Failed(words) = played.end else { panic!("case {number}: {:?}", played.end) };
        assert!(words.contains("cannot be trained"), "{words}");
    }
}

#[test]
fn what_cannot_be_understood_or_comes_out_of_turn_ends_the_session_in_words() {
    let frames: [fn() -> Vec<u8>; 6] = [
        Vec::new,
        || vec![1, 2, 3],
        || vec![0xff; 100],
        || {
            let mut bytes = frame::encode(&ToWorker::from(Down::from(Benchmark {})), &[]).unwrap();
            bytes.pop();
            bytes
        },
        || {
            let name = "a worker's word".into();
            let hello = Hello { protocol: 2, build: "test".into(), kind: WorkerKind::Native, name };
            frame::encode(&FromWorker::from(Up::from(hello)), &[]).unwrap()
        },
        || frame::encode(&ToWorker::from(Down::from(welcome(fixtures::run()))), &[]).unwrap(),
    ];
    for bytes in frames {
        let played = play(async move |world| {
            let peer = world.coordinator.join(&fixtures::run()).await;
            peer.bytes(bytes());
            peer.next().await
        });
        assert!(matches!(played.end, End::Failed(_)), "{:?}", played.end);
    }
    let played = play(async |world| {
        let peer = world.coordinator.accept().await;
        peer.send(Benchmark {});
    });
    assert!(matches!(played.end, End::Failed(_)), "work before a welcome");
}

#[test]
fn heartbeats_and_leases_of_no_time_do_not_make_the_session_spin() {
    let played = play(async |world| {
        let peer = world.coordinator.accept().await;
        peer.up().await;
        peer.send(Welcome { heartbeat_ms: 0, lease_ms: 0, ..welcome(fixtures::run()) });
        peer.profile().await;
        world.time.sleep(1.0).await;
        let beats = peer.heartbeats();
        world.leave();
        beats
    });
    assert!((5..=25).contains(&played.script), "{} heartbeats", played.script);
}

/// Pauses before connecting again.
fn pauses(events: &[(f64, SessionEvent)]) -> Vec<f64> {
    let pause = |(_, event): &(f64, SessionEvent)| match event {
        SessionEvent::Reconnecting { in_seconds, .. } => Some(*in_seconds),
        _ => None,
    };
    events.iter().filter_map(pause).collect()
}

#[test]
fn files_of_another_hash_or_length_are_not_taken_and_not_fetched_for_ever() {
    for overflows in [false, true] {
        let played = play(async move |world| {
            let run = fixtures::run();
            world.store.overflows.set(overflows);
            let part = world.store.keep_wrong(&[1; 1000]);
            for _ in 0..5 {
                let peer = world.coordinator.join(&run).await;
                peer.assign_all(&run, 1, 0, WeightSource::Snapshot(vec![part]));
                assert!(peer.next().await.is_none(), "the worker goes");
            }
            world.leave();
        });
        let pauses = pauses(&played.events);
        assert!(pauses.len() >= 4 && pauses[3] >= 2.0, "the pauses grow: {pauses:?}");
        assert_eq!(played.end, End::Left);
    }
}

#[test]
fn a_file_longer_than_any_of_the_run_is_not_fetched() {
    let played = play(async |world| {
        let run = fixtures::run();
        let peer = world.coordinator.join(&run).await;
        let part = BlobRef { hash: BlobHash::of(b""), bytes: 1 << 40 };
        peer.assign_all(&run, 1, 0, WeightSource::Snapshot(vec![part]));
        peer.next().await;
        world.store.gets.get()
    });
    assert_eq!(played.script, 0);
    assert!(matches!(played.end, End::Failed(_)), "{:?}", played.end);
}

/// One thing that a coordinator may say, drawn from numbers that are right, nearly right, and absurd.
#[derive(Debug, Clone)]
struct Say {
    kind: u8,
    /// Seconds before it.
    pause: f64,
    numbers: [u32; 4],
    flag: bool,
    /// What happens to the frame's bytes.
    damage: Option<(u16, u8)>,
}

fn say() -> impl Strategy<Value = Say> {
    let number =
        prop_oneof![6 => 0..3_u32, 1 => Just(5), 1 => Just(1000), 1 => Just(1 << 20), 1 => Just(u32::MAX)];
    let pause = prop_oneof![3 => Just(0.0), 1 => Just(0.05), 1 => Just(4.0), 1 => Just(40.0)];
    let damage = prop_oneof![20 => Just(None), 1 => any::<(u16, u8)>().prop_map(Some)];
    (0..KINDS, pause, [number.clone(), number.clone(), number.clone(), number], any::<bool>(), damage)
        .prop_map(|(kind, pause, numbers, flag, damage)| Say { kind, pause, numbers, flag, damage })
}

/// Messages of [`message`].
const KINDS: u8 = 21;

/// The message of a kind with its payload; every message that a worker can get is among them.
fn message(say: &Say, run: &RunSpec, world: &World) -> (ToWorker, Vec<u8>) {
    let [a, b, c, d] = say.numbers;
    let (small_a, flag) = (u64::from(a), say.flag);
    let blob = |seed: u32| match seed {
        0..3 if run.blocks.is_some() => {
            let weights = Weights::draw(run, 1).unwrap();
            world
                .store
                .keep(&if seed == 0 { weights.table_file() } else { weights.block_file(seed - 1) }.unwrap())
        }
        5 => world.store.keep_wrong(b"wrong"),
        1000 => world.store.keep(b"no weights"),
        _ => BlobRef { hash: BlobHash([7; 32]), bytes: u64::from(seed) },
    };
    let pass = match c {
        0..3 => Pass::Train { micro_batch: c },
        _ => Pass::Validate { batch: d },
    };
    let to = Address { epoch: small_a, step: u64::from(b), pass, hop: d % 4 };
    let shape = |right: &[u32]| {
        let mut shape = right.to_vec();
        if c == 5 {
            shape[0] += 1;
        }
        shape
    };
    let (n, t) = (run.sequences, run.context);
    let token_frame = || {
        let (tensor, payload) = ids(&shape(&[n, t]), a % 7, run);
        (TensorFrame { to, tensor }, payload)
    };
    let float_frame = || {
        let shape = shape(&[n, t, run.model.width]);
        let value = if flag { 0.5 } else { 3e38 };
        let values = vec![value; shape.iter().product::<u32>() as usize];
        let (tensor, payload) = encode_floats(&values, &shape, Encoding::F32).unwrap();
        (TensorFrame { to, tensor }, payload)
    };
    let none = vec![];
    let (down, payload): (Down, Vec<u8>) = match say.kind {
        0 => (welcome(run.clone()).into(), none),
        1 => (Refuse(protocol::refusal::Refusal::LeaseEnded { seconds: a }).into(), none),
        2 => {
            let padding = a.min(5000);
            (ProbeAnswer { number: b, padding }.into(), vec![0; padding as usize])
        }
        3 => (HeartbeatAnswer {}.into(), none),
        4 => (Benchmark {}.into(), none),
        5 if a == 1 && b == 1 => (Drain { reason: DrainReason::Finished }.into(), none),
        5 | 6 => {
            let weights = if flag {
                WeightSource::Seed(small_a)
            } else {
                WeightSource::Snapshot(vec![blob(b), blob(c)])
            };
            let mut assignment = whole(run, small_a, u64::from(b), weights);
            assignment.micro_batches = c.min(4000);
            assignment.hop_count = if d < 3 { 1 } else { d.min(1000) };
            if d == 5 {
                assignment.hops[0].part.end_layer = c.min(1000);
            }
            (Assign(assignment).into(), none)
        }
        7 => {
            let (frame, payload) = token_frame();
            (Tokens(frame).into(), payload)
        }
        8 => {
            let (frame, payload) = token_frame();
            (Targets(frame).into(), payload)
        }
        9 => {
            let learning_rate = if flag { 1e-3 } else { 1e6 };
            let (epoch, step) = (small_a, u64::from(b));
            (Apply { epoch, step, clip_scale: 1.0, learning_rate, snapshot: c < 2 }.into(), none)
        }
        10 => (Revoke { epoch: small_a }.into(), none),
        11 => (SnapshotKept { steps_done: small_a }.into(), none),
        12 | 13 => {
            let steps = c.min(3);
            let task = RoundTask {
                round: small_a,
                block: b.min(1000),
                base: blob(b.saturating_add(1)),
                table: blob(if d == 5 { 5 } else { 0 }),
                seed: 1,
                learning_rates: vec![if flag { 1e-3 } else { 1e6 }; steps as usize],
                fresh: d == 0,
                deadline_ms: u64::from(d),
            };
            let (windows, payload) = ids(&[steps + u32::from(d == 1000), n, t + 1], 0, run);
            (Round { task, windows }.into(), payload)
        }
        14 => {
            let refused = flag.then(|| "late".to_string());
            (DeltaOutcome { round: small_a, block: b.min(1000), refused }.into(), none)
        }
        15 => {
            let blocks = if flag { vec![blob(1), blob(2)] } else { vec![blob(b); c.min(20) as usize] };
            let task =
                EvaluationTask { round: small_a, batch: 0, blocks, table: blob(0), seed: 1, draws: c.min(3) };
            let (windows, payload) = ids(&[n + u32::from(d == 5), t + 1], 0, run);
            (Evaluate { task, windows }.into(), payload)
        }
        16 => (CloseTexts { epoch: small_a, texts: vec![u64::from(b), u64::from(c)] }.into(), none),
        17 | 18 => {
            let text = |number: u32| TextRows {
                text: u64::from(number),
                positions: b.min(1 << 24),
                keep: if flag { 0 } else { c.min(1 << 24) },
                rows: d.min(1 << 24),
                reading: ReadRows {
                    scored: vec![c; a.min(3) as usize],
                    choices: b.min(500),
                    first: small_a,
                    temperature: f64::from(c.min(1000)),
                    top_k: d,
                    top_p: if flag { 1.0 } else { 0.0 },
                    seed: 1,
                    likeliest: a.min(5),
                },
            };
            let of = Traversal { epoch: small_a, number: u64::from(b), hop: c % 4 };
            let (rows, payload) = ids(&[d.saturating_mul(2).min(2000) + u32::from(c == 5)], a % 7, run);
            (Decode { of, texts: vec![text(a), text(b)], rows }.into(), payload)
        }
        19 => {
            let (frame, payload) = float_frame();
            return (Relayed::from(Activation(frame)).into(), payload);
        }
        _ => {
            let (frame, payload) = float_frame();
            return (Relayed::from(Gradient(frame)).into(), payload);
        }
    };
    (down.into(), payload)
}

/// Says it all on one connection.
async fn say_all(says: &[Say], run: &RunSpec, world: &World, peer: &Peer) {
    for say in says {
        world.time.sleep(say.pause).await;
        let (message, payload) = message(say, run, world);
        // What the wire does not allow cannot be sent by this program.
        let Ok(mut bytes) = frame::encode(&message, &payload) else { continue };
        if let Some((at, with)) = say.damage {
            let at = usize::from(at) % bytes.len();
            if with == 0 {
                bytes.truncate(at);
            } else {
                bytes[at] ^= with;
            }
        }
        peer.bytes(bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn every_message_in_any_order_ends_the_session_or_does_not(
        says in vec(say(), 0..30),
        block_mode in any::<bool>(),
        trains in any::<bool>(),
        measured in prop::bool::weighted(0.9),
    ) {
        let run = if block_mode {
            fixtures::block_run()
        } else {
            RunSpec { trains, cache_bytes: 1 << 20, ..fixtures::run() }
        };
        let played = play(async move |world| {
            // A few connections, then nobody listens any more.
            world.coordinator.dials([Dial::Accept; 3]);
            world.coordinator.dials([Dial::Refuse; 1000]);
            let peer = world.coordinator.accept().await;
            peer.welcome(&run).await;
            if measured {
                peer.profile().await;
            }
            say_all(&says, &run, &world, &peer).await;
            world.time.sleep(300.0).await;
            peer.close();
            world.time.sleep(100.0).await;
            world.leave();
        });
        // It has ended, which `play` makes sure of; what it said last is how.
        let told = played.events.last().map(|(_, event)| event.clone());
        let matches = match &played.end {
            End::Over(reason) => told == Some(SessionEvent::Over { reason: *reason }),
            End::Left => told == Some(SessionEvent::Left),
            End::Refused(words) => told == Some(SessionEvent::Refused { words: words.clone() }),
            End::Failed(words) => told == Some(SessionEvent::Failed { words: words.clone() }),
        };
        prop_assert!(matches, "{:?} after {told:?}", played.end);
        // Every number that went out was possible: the scripted coordinator decodes what it gets.
    }
}
