//! Block mode against a scripted coordinator, with top-k's residuals in the real session.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    World,
    clock::LOCAL_STEP,
    coordinator::{Peer, ids},
    play,
};
use engine::{
    Device,
    denoiser::{LocalRound, Replica, Task, Weights},
};
use protocol::{
    blob::BlobRef,
    delta::{self, DeltaEncoding, DeltaHeader},
    message::*,
    spec::RunSpec,
    tab::SessionEvent,
    tensor::decode_tokens,
};
use testkit::fixtures;
use worker::End;

const STEPS: u32 = 2;

/// A run whose deltas keep back all but a tenth.
fn top_k_run() -> RunSpec {
    let mut run = fixtures::block_run();
    if let Some(blocks) = &mut run.blocks {
        blocks.delta = DeltaEncoding::TopK { per_mille: 100 };
    }
    run
}

/// The weights of a round, in the store.
#[derive(Clone, Copy)]
struct Base {
    block: BlobRef,
    table: BlobRef,
}

fn files(run: &RunSpec, block: u32, seed: u64) -> [Vec<u8>; 2] {
    let weights = Weights::draw(run, seed).unwrap();
    [weights.block_file(block).unwrap(), weights.table_file().unwrap()]
}

fn publish(world: &World, run: &RunSpec, block: u32, seed: u64) -> Base {
    let [block, table] = files(run, block, seed).map(|file| world.store.keep(&file));
    Base { block, table }
}

fn task(round: u64, block: u32, base: Base, fresh: bool) -> RoundTask {
    RoundTask {
        round,
        block,
        base: base.block,
        table: base.table,
        seed: round + 100,
        learning_rates: vec![1e-2; STEPS as usize],
        fresh,
        deadline_ms: 60_000,
    }
}

fn send_round(peer: &Peer, run: &RunSpec, task: RoundTask) {
    let steps = task.learning_rates.len() as u32;
    let (windows, payload) = ids(&[steps, run.sequences, run.context + 1], task.round as u32, run);
    peer.send_with(Round { task, windows }, &payload);
}

async fn delta(world: &World, peer: &Peer) -> (DeltaReady, Vec<u8>) {
    match peer.up().await {
        Up::DeltaReady(ready) => {
            let bytes = world.store.get(ready.blob).unwrap();
            (ready, bytes)
        }
        other => panic!("a delta was expected, and {other:?} came"),
    }
}

fn outcome(peer: &Peer, round: u64, block: u32, refused: bool) {
    peer.send(DeltaOutcome { round, block, refused: refused.then(|| "it was late".into()) });
}

/// A worker of block mode in a few lines: what the session's deltas must be equal to.
struct Reference {
    run: RunSpec,
    replica: Option<Replica>,
}

impl Reference {
    fn new(run: &RunSpec) -> Self {
        Self { run: run.clone(), replica: None }
    }

    /// The delta of a task as a file, with these residuals.
    fn delta(&mut self, task: &RoundTask, seed: u64, residuals: &mut Vec<Vec<f32>>) -> Vec<u8> {
        let run = &self.run;
        let files = files(run, task.block, seed);
        let replica = match self.replica.take().filter(|replica| replica.block() == task.block) {
            Some(mut replica) => {
                replica.rebase(&files, task.fresh).unwrap();
                replica
            }
            None => Replica::import(run, task.block, &files, &Device::Cpu).unwrap(),
        };
        let replica = self.replica.insert(replica);
        let (meta, payload) = ids(&[STEPS, run.sequences, run.context + 1], task.round as u32, run);
        let work = Task {
            seed: task.seed,
            learning_rates: task.learning_rates.clone(),
            windows: decode_tokens(&meta, &payload).unwrap(),
            shape: [run.sequences as usize, run.context as usize],
        };
        let tensors = futures::executor::block_on(async {
            let mut local = LocalRound::begin(work, replica).await.unwrap();
            while local.step(replica).await.unwrap().is_some() {}
            local.delta(replica).await.unwrap()
        });
        let header = DeltaHeader {
            round: task.round,
            block: task.block,
            base: task.base.hash,
            table: task.table.hash,
            encoding: run.blocks.unwrap().delta,
            lengths: tensors.iter().map(|tensor| tensor.len() as u32).collect(),
        };
        delta::encode(&header, &tensors, Some(residuals)).unwrap()
    }
}

#[test]
fn a_round_gives_a_delta_with_the_time_of_its_local_steps() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        let base = publish(&world, &run, 1, 5);
        send_round(&peer, &run, task(4, 1, base, true));
        let (ready, _) = delta(&world, &peer).await;
        // Outcomes of other rounds and blocks are not this one's; nor does this one come twice.
        outcome(&peer, 3, 1, true);
        outcome(&peer, 4, 0, true);
        outcome(&peer, 4, 1, false);
        outcome(&peer, 4, 1, true);
        peer.send(Drain { reason: DrainReason::Finished });
        ready
    });
    let ready = played.script;
    assert_eq!((ready.round, ready.block), (4, 1));
    assert!((ready.timings.local_steps - f64::from(STEPS) * LOCAL_STEP).abs() < 1e-6, "{:?}", ready.timings);
    assert_eq!((ready.timings.forward, ready.timings.backward), (0.0, 0.0));
    assert!((ready.timings.receive - 0.2).abs() < 1e-6 && (ready.timings.send - 0.1).abs() < 1e-6);
    let outcomes: Vec<_> = played
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            SessionEvent::DeltaOutcome { round, refused } => Some((*round, refused.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [(4, None)]);
}

#[test]
fn an_accepted_delta_keeps_the_residuals_and_a_refused_one_puts_them_back() {
    let run = top_k_run();
    let played = play({
        let run = run.clone();
        async move |world| {
            let peer = world.coordinator.join(&run).await;
            let mut sent = vec![];
            for (round, refused) in [(0, false), (1, true), (2, false), (3, false)] {
                let base = publish(&world, &run, 0, round);
                send_round(&peer, &run, task(round, 0, base, round == 0));
                sent.push(delta(&world, &peer).await.1);
                outcome(&peer, round, 0, refused);
            }
            world.leave();
            sent
        }
    });
    let base = |seed| {
        let [block, table] = files(&run, 0, seed).map(|file| BlobRef::of(&file));
        Base { block, table }
    };
    let (mut reference, mut residuals) = (Reference::new(&run), vec![]);
    for (round, refused) in [(0, false), (1, true), (2, false), (3, false)] {
        let before = residuals.clone();
        let expected = reference.delta(&task(round, 0, base(round), round == 0), round, &mut residuals);
        assert_eq!(played.script[round as usize], expected, "round {round}");
        assert_ne!(before, residuals, "the test would see nothing otherwise");
        if refused {
            residuals = before;
        }
    }
}

#[test]
fn residuals_go_with_a_fresh_start_and_with_another_block() {
    let run = top_k_run();
    let played = play({
        let run = run.clone();
        async move |world| {
            let peer = world.coordinator.join(&run).await;
            let mut sent = vec![];
            for (round, block, fresh) in [(0, 0, true), (1, 0, true), (2, 1, false), (3, 0, false)] {
                let base = publish(&world, &run, block, round);
                send_round(&peer, &run, task(round, block, base, fresh));
                sent.push(delta(&world, &peer).await.1);
                outcome(&peer, round, block, false);
            }
            world.leave();
            sent
        }
    });
    let mut reference = Reference::new(&run);
    for (round, block, fresh) in [(0, 0, true), (1, 0, true), (2, 1, false), (3, 0, false)] {
        let [base, table] = files(&run, block, round).map(|file| BlobRef::of(&file));
        let task = task(round, block, Base { block: base, table }, fresh);
        let expected = reference.delta(&task, round, &mut vec![]);
        assert_eq!(played.script[round as usize], expected, "round {round}");
    }
}

#[test]
fn a_delta_that_was_not_sent_or_not_answered_puts_its_residuals_back() {
    let run = top_k_run();
    let played = play({
        let run = run.clone();
        async move |world| {
            let peer = world.coordinator.join(&run).await;
            let base = publish(&world, &run, 0, 0);
            send_round(&peer, &run, task(0, 0, base, true));
            let first = delta(&world, &peer).await.1;
            outcome(&peer, 0, 0, false);
            // Its upload never ends; the next round comes meanwhile.
            let bases = [1, 2, 3].map(|seed| publish(&world, &run, 0, seed));
            send_round(&peer, &run, task(1, 0, bases[0], false));
            world.time.sleep(1.5 * LOCAL_STEP).await;
            world.store.stalled.set(true);
            let puts = world.store.puts.get();
            while world.store.puts.get() == puts {
                world.time.sleep(0.1).await;
            }
            world.store.stalled.set(false);
            send_round(&peer, &run, task(2, 0, bases[1], false));
            let (ready, second) = delta(&world, &peer).await;
            assert_eq!(ready.round, 2);
            // Nobody says what became of it.
            send_round(&peer, &run, task(3, 0, bases[2], false));
            let third = delta(&world, &peer).await.1;
            world.leave();
            [first, second, third]
        }
    });
    let mut reference = Reference::new(&run);
    let mut residuals = vec![];
    let with = |round| {
        let [block, table] = files(&run, 0, round).map(|file| BlobRef::of(&file));
        task(round, 0, Base { block, table }, round == 0)
    };
    assert_eq!(played.script[0], reference.delta(&with(0), 0, &mut residuals));
    reference.delta(&with(1), 1, &mut residuals.clone());
    assert_eq!(played.script[1], reference.delta(&with(2), 2, &mut residuals.clone()));
    assert_eq!(played.script[2], reference.delta(&with(3), 3, &mut residuals.clone()));
}

#[test]
fn a_newer_round_ends_the_one_in_progress_and_an_earlier_one_is_not_begun() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        let base = publish(&world, &run, 0, 0);
        send_round(&peer, &run, task(6, 0, base, true));
        world.time.sleep(0.5 * LOCAL_STEP).await;
        send_round(&peer, &run, task(8, 0, base, true));
        world.time.sleep(LOCAL_STEP).await;
        send_round(&peer, &run, task(7, 0, base, true));
        let (ready, _) = delta(&world, &peer).await;
        world.leave();
        ready.round
    });
    assert_eq!(played.script, 8);
    let begun: Vec<u64> = played
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            SessionEvent::BlockLoading { round, .. } => Some(*round),
            _ => None,
        })
        .collect();
    assert_eq!(begun, [6, 8]);
}

#[test]
fn after_a_lost_connection_a_round_of_an_earlier_number_counts() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let base = publish(&world, &run, 0, 0);
        let peer = world.coordinator.join(&run).await;
        send_round(&peer, &run, task(6, 0, base, true));
        delta(&world, &peer).await;
        let gets = world.store.gets.get();
        peer.close();
        // A coordinator that was resumed from an older manifest.
        let peer = world.coordinator.join(&run).await;
        send_round(&peer, &run, task(5, 0, base, true));
        let (ready, _) = delta(&world, &peer).await;
        world.leave();
        (ready.round, world.store.gets.get() - gets)
    });
    assert_eq!(played.script, (5, 0), "and the files are there from before");
}

#[test]
fn windows_of_another_shape_or_with_foreign_tokens_are_a_fault_and_the_next_round_is_trained() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        let base = publish(&world, &run, 0, 0);
        let mut kinds = vec![];
        let mut fault = async |round: Round, payload: Vec<u8>| {
            peer.send_with(round, &payload);
            match peer.up().await {
                Up::Fault(fault) => kinds.push((fault.during, fault.kind)),
                other => panic!("a fault was expected, and {other:?} came"),
            }
        };
        let shape = [STEPS, run.sequences, run.context + 1];
        for (round, shape) in [(0, [STEPS + 1, 2, 6]), (1, [STEPS, 1, 6]), (2, [STEPS, 2, 5])] {
            let (windows, payload) = ids(&shape, 0, &run);
            fault(Round { task: task(round, 0, base, true), windows }, payload).await;
        }
        let count = shape.iter().product::<u32>() as usize;
        let (windows, payload) = protocol::tensor::encode_tokens(&vec![11; count], &shape).unwrap();
        fault(Round { task: task(3, 0, base, true), windows }, payload).await;
        let (windows, mut payload) = ids(&shape, 0, &run);
        payload[0] ^= 1;
        fault(Round { task: task(4, 0, base, true), windows }, payload).await;
        send_round(&peer, &run, task(5, 0, base, true));
        let (ready, _) = delta(&world, &peer).await;
        world.leave();
        (kinds, ready.round)
    });
    let bad = |round| (round, FaultKind::BadTensor);
    assert_eq!(played.script, (vec![bad(0), bad(1), bad(2), bad(3), bad(4)], 5));
}

#[test]
fn a_block_that_does_not_exist_or_files_of_another_are_a_fault() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        let base = publish(&world, &run, 0, 0);
        let mut kinds = vec![];
        for (round, block) in [(0, 1000), (1, 1)] {
            send_round(&peer, &run, task(round, block, base, true));
            match peer.up().await {
                Up::Fault(fault) => kinds.push((fault.during, fault.kind)),
                other => panic!("a fault was expected, and {other:?} came"),
            }
        }
        world.leave();
        kinds
    });
    assert_eq!(played.script, [(0, FaultKind::Weights), (1, FaultKind::Weights)]);
}

#[test]
fn training_that_goes_wrong_is_told_and_never_sent() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        let base = publish(&world, &run, 0, 0);
        let mut wild = task(0, 0, base, true);
        wild.learning_rates = vec![1e6; 20];
        send_round(&peer, &run, wild);
        let answer = peer.up().await;
        world.leave();
        answer
    });
    assert!(
        matches!(played.script, Up::Fault(Fault { during: 0, kind: FaultKind::NotFinite, .. })),
        "{:?}",
        played.script
    );
}

#[test]
fn the_whole_model_is_measured_on_request() {
    let run = fixtures::block_run();
    let played = play(async move |world| {
        let peer = world.coordinator.join(&run).await;
        let bases = [0, 1].map(|block| publish(&world, &run, block, 9));
        let evaluation = EvaluationTask {
            round: 3,
            batch: 2,
            blocks: bases.iter().map(|base| base.block).collect(),
            table: bases[0].table,
            seed: 1,
            draws: 2,
        };
        let (windows, payload) = ids(&[run.sequences, run.context + 1], 0, &run);
        peer.send_with(Evaluate { task: evaluation.clone(), windows: windows.clone() }, &payload);
        let answer = peer.up().await;
        let lacking = EvaluationTask { blocks: vec![bases[0].block], ..evaluation };
        peer.send_with(Evaluate { task: lacking, windows }, &payload);
        let fault = peer.up().await;
        world.leave();
        (answer, fault)
    });
    let (answer, fault) = played.script;
    let Up::EvaluationReport(report) = answer else { panic!("scores were expected, and {answer:?} came") };
    assert_eq!((report.round, report.batch, report.scores.draws), (3, 2, 2));
    assert!(report.scores.is_of_blocks(2) && report.scores.one_draw > 0.0);
    assert!(matches!(fault, Up::Fault(Fault { during: 3, kind: FaultKind::Weights, .. })), "{fault:?}");
    assert_eq!(played.end, End::Left);
}
