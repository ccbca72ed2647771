//! Rounds done again, and evaluations computed on the processor: the ground for spot checks.

#![allow(clippy::unwrap_used)]

use engine::{
    denoiser::{
        BlockError, LocalRound, Replica, Task, Weights,
        evaluate::{evaluate, measure},
        recheck::{RecheckError, Step, distance, redo, tolerance},
        sweep::Composed,
    },
    device::Device,
    gpt2::StageError,
};
use futures::executor::block_on;
use protocol::{
    blob::BlobRef,
    delta::{DeltaEncoding, DeltaHeader, encode},
    published::Published,
    spec::RunSpec,
};
use testkit::fixtures::block_run;

const BLOCK: u32 = 1;
/// H.
const STEPS: usize = 3;

fn windows(run: &RunSpec, count: usize) -> Vec<u32> {
    let len = count as u32 * run.sequences * (run.context + 1);
    (0..len).map(|i| (i * 7 + 3) % run.model.vocabulary).collect()
}

/// A round of block 1 from the initial weights.
fn step(run: &RunSpec, seed: u64) -> Step {
    let weights = Weights::draw(run, 3).unwrap();
    Step {
        seed,
        files: [weights.block_file(BLOCK).unwrap(), weights.table_file().unwrap()],
        windows: windows(run, STEPS),
        learning_rates: vec![0.01; STEPS],
    }
}

/// What a worker does with it; gives its delta.
async fn work(run: &RunSpec, replica: &mut Replica, step: &Step) -> Vec<Vec<f32>> {
    replica.rebase(&step.files, false).unwrap();
    let task = Task {
        seed: step.seed,
        learning_rates: step.learning_rates.clone(),
        windows: step.windows.clone(),
        shape: [run.sequences as usize, run.context as usize],
    };
    let mut round = LocalRound::begin(task, replica).await.unwrap();
    while round.step(replica).await.unwrap().is_some() {}
    round.delta(replica).await.unwrap()
}

fn published(run: &RunSpec) -> Published {
    let weights = Weights::draw(run, 3).unwrap();
    let blob = |file: Vec<u8>| BlobRef::of(&file);
    Published {
        round: 4,
        blocks: (0..2).map(|block| blob(weights.block_file(block).unwrap())).collect(),
        table: blob(weights.table_file().unwrap()),
        outer: None,
    }
}

/// The delta as it goes over the wire.
fn file(run: &RunSpec, delta: &[Vec<f32>]) -> Vec<u8> {
    let published = published(run);
    let header = DeltaHeader {
        round: published.round,
        block: BLOCK,
        base: published.blocks[BLOCK as usize].hash,
        table: published.table.hash,
        encoding: run.blocks.unwrap().delta,
        lengths: delta.iter().map(|tensor| tensor.len() as u32).collect(),
    };
    encode(&header, delta, None).unwrap()
}

#[test]
fn a_round_done_again_is_the_same_bits_and_other_work_is_far_off() {
    for encoding in [DeltaEncoding::F32, DeltaEncoding::F16, DeltaEncoding::Int8] {
        let mut run = block_run();
        run.blocks.as_mut().unwrap().delta = encoding;
        let step = step(&run, 9);
        let mut replica = Replica::import(&run, BLOCK, &step.files, &Device::Cpu).unwrap();
        let delta = block_on(work(&run, &mut replica, &step));
        let redone = block_on(redo(&run, BLOCK, vec![step.clone()])).unwrap();
        assert_eq!(redone, delta);
        let sent = file(&run, &delta);
        let honest = distance(&run, BLOCK, &published(&run), &sent, &redone).unwrap();
        assert!(honest <= tolerance(encoding), "{encoding:?}: {honest}");

        let other = block_on(redo(&run, BLOCK, vec![Step { seed: 10, ..step }])).unwrap();
        let apart = distance(&run, BLOCK, &published(&run), &sent, &other).unwrap();
        assert!(apart > 5.0 * tolerance(encoding), "{encoding:?}: other noise is only {apart} off");
        let flipped: Vec<Vec<f32>> = delta.iter().map(|t| t.iter().map(|x| -x).collect()).collect();
        let apart = distance(&run, BLOCK, &published(&run), &file(&run, &flipped), &redone).unwrap();
        assert!((apart - 2.0).abs() < 0.1, "{encoding:?}: the opposite is {apart} off");
    }
}

#[test]
fn moments_come_from_the_rounds_before() {
    let run = block_run();
    let chain = vec![step(&run, 9), step(&run, 10)];
    let mut replica = Replica::import(&run, BLOCK, &chain[0].files, &Device::Cpu).unwrap();
    block_on(work(&run, &mut replica, &chain[0]));
    let second = block_on(work(&run, &mut replica, &chain[1]));
    assert_eq!(block_on(redo(&run, BLOCK, chain.clone())).unwrap(), second);
    assert_ne!(block_on(redo(&run, BLOCK, chain[1..].to_vec())).unwrap(), second);
}

#[test]
fn what_cannot_be_done_again_is_said_in_words() {
    let run = block_run();
    assert_eq!(block_on(redo(&run, BLOCK, Vec::new())), Err(RecheckError::Unknown));
    let mut short = step(&run, 9);
    short.windows.pop();
    let outcome = block_on(redo(&run, BLOCK, vec![short]));
    assert!(matches!(outcome, Err(RecheckError::Block(BlockError::Stage(StageError::Length { .. })))));
    let redone = block_on(redo(&run, BLOCK, vec![step(&run, 9)])).unwrap();
    let sent = file(&run, &redone);
    let outcome = distance(&run, 2, &published(&run), &sent, &redone);
    assert_eq!(outcome, Err(BlockError::NoSuchBlock { block: 2, count: 2 }.into()));
    assert!(matches!(
        distance(&run, BLOCK, &published(&run), &sent[1..], &redone),
        Err(RecheckError::Delta(_))
    ));
}

#[test]
fn a_batch_is_measured_as_by_a_worker() {
    let run = block_run();
    let file = Weights::draw(&run, 3).unwrap().whole_file().unwrap();
    let windows = windows(&run, 1);
    let shape = [run.sequences as usize, run.context as usize];
    let measured = block_on(measure(&run, &[&file], &windows, 5, 2)).unwrap();
    let model = block_on(Composed::import(&run, &[&file], &Device::Cpu)).unwrap();
    assert_eq!(block_on(evaluate(&model, &windows, shape, 5, 2, async || {})), Ok(measured.clone()));
    assert!(measured.is_of_blocks(2) && measured.draws == 2);

    let refused = |windows: &[u32]| block_on(measure(&run, &[&file], windows, 5, 2)).unwrap_err();
    assert!(matches!(refused(&windows[1..]), BlockError::Stage(StageError::Length { .. })));
    let mut unknown = windows.clone();
    *unknown.last_mut().unwrap() = run.model.vocabulary;
    assert!(matches!(refused(&unknown), BlockError::Stage(StageError::Token { token: 11, .. })));
}
