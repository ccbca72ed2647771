//! Deltas before and after they touch the weights: what is refused, and what an average is.

#![allow(clippy::unwrap_used)]

use coordinator::{
    rounds::{
        DeltaRefusal, Keeper, Published,
        keeper::{KeeperError, Rules},
    },
    run::event::WorkerId,
};
use engine::aggregate::{Aggregator, OuterStep};
use protocol::{
    blob::BlobHash,
    delta::{DeltaEncoding, DeltaError, DeltaHeader, encode},
    spec::{BlockSpec, ModelSpec, Moments, OptimizerSpec, RunSpec},
    tensor::Encoding,
};

const RULES: Rules = Rules {
    aggregator: Aggregator::Mean,
    outer: OuterStep::Mean,
    largest: 0.5,
    norm_limit: Some(10.0),
    suspicious: true,
};

fn run() -> RunSpec {
    RunSpec {
        name: "keeper".into(),
        model: ModelSpec {
            vocabulary: 11,
            positions: 6,
            width: 8,
            heads: 2,
            layers: 2,
            tie_embeddings: false,
        },
        optimizer: OptimizerSpec {
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
        },
        sequences: 2,
        context: 5,
        micro_batches: 1,
        recompute: false,
        wire: Encoding::F32,
        moments: Moments::None,
        blocks: Some(BlockSpec {
            count: 2,
            sigma_min: 1.0,
            sigma_max: 10.0,
            p_mean: -1.2,
            p_std: 1.2,
            gamma: 0.1,
            delta: DeltaEncoding::F32,
        }),
    }
}

struct World {
    keeper: Keeper,
    published: Published,
}

impl World {
    fn new(rules: Rules) -> Self {
        let keeper = Keeper::draw(&run(), 3, rules).unwrap();
        let published = keeper.files().unwrap().published(4);
        Self { keeper, published }
    }

    fn header(&self, block: u32) -> DeltaHeader {
        DeltaHeader {
            round: self.published.round,
            block,
            base: self.published.blocks[block as usize].hash,
            table: self.published.table.hash,
            encoding: DeltaEncoding::F32,
            lengths: self.keeper.weights().lengths(block),
        }
    }

    /// A delta of block `block` whose numbers all are `value`.
    fn delta(&self, block: u32, value: f32) -> Vec<u8> {
        let header = self.header(block);
        let tensors: Vec<Vec<f32>> = header.lengths.iter().map(|n| vec![value; *n as usize]).collect();
        encode(&header, &tensors, None).unwrap()
    }

    fn check(&mut self, worker: u64, block: u32, bytes: &[u8]) -> Result<f64, DeltaRefusal> {
        let published = self.published.clone();
        self.keeper.check(WorkerId(worker), block, &published, bytes)
    }
}

#[test]
fn every_kind_of_wrong_delta_is_refused_and_the_weights_stay() {
    let mut world = World::new(RULES);
    let before = world.keeper.weights().clone();
    let header = world.header(1);
    let tensors: Vec<Vec<f32>> = header.lengths.iter().map(|n| vec![0.01; *n as usize]).collect();
    let with = |change: fn(&mut DeltaHeader)| {
        let mut header = header.clone();
        change(&mut header);
        let mut tensors = tensors.clone();
        tensors.truncate(header.lengths.len());
        tensors[0].resize(header.lengths[0] as usize, 0.01);
        encode(&header, &tensors, None).unwrap()
    };
    let absurd =
        encode(&header, &tensors.iter().map(|t| vec![0.6; t.len()]).collect::<Vec<_>>(), None).unwrap();
    let mut not_finite = with(|_| {});
    let end = not_finite.len();
    not_finite[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    type Expected = fn(&DeltaError) -> bool;
    let cases: [(Vec<u8>, Expected); 11] = [
        (b"hello".to_vec(), |e| matches!(e, DeltaError::Magic { .. })),
        (with(|_| {})[..end - 1].to_vec(), |e| matches!(e, DeltaError::Truncated { .. })),
        (with(|h| h.round = 3), |e| matches!(e, DeltaError::Round { found: 3, expected: 4 })),
        (with(|h| h.block = 0), |e| matches!(e, DeltaError::Block { found: 0, expected: 1 })),
        (with(|h| h.base = BlobHash::of(b"old")), |e| matches!(e, DeltaError::Base { .. })),
        (with(|h| h.table = BlobHash::of(b"old")), |e| matches!(e, DeltaError::Table { .. })),
        (with(|h| h.encoding = DeltaEncoding::F16), |e| matches!(e, DeltaError::Encoding { .. })),
        (with(|h| h.lengths[0] += 1), |e| matches!(e, DeltaError::Length { tensor: 0, .. })),
        (with(|h| h.lengths.truncate(2)), |e| matches!(e, DeltaError::Tensors { .. })),
        (absurd, |e| matches!(e, DeltaError::Absurd { .. })),
        (not_finite, |e| matches!(e, DeltaError::Tensor { .. })),
    ];
    for (bytes, expected) in cases {
        match world.check(1, 1, &bytes) {
            Err(DeltaRefusal::Malformed(error)) if expected(&error) => {}
            other => panic!("{other:?}"),
        }
    }
    let empty = world.delta(1, 0.0);
    assert_eq!(world.check(1, 1, &empty), Err(DeltaRefusal::Empty));
    let averaged = world.keeper.average(&[WorkerId(1)]).unwrap();
    assert_eq!(averaged.updated, [false, false], "nothing has passed");
    assert_eq!(world.keeper.weights(), &before);
}

#[test]
fn copies_replays_and_strangers_are_known() {
    let mut world = World::new(RULES);
    let delta = world.delta(0, 0.01);
    world.check(1, 0, &delta).unwrap();
    assert_eq!(world.check(1, 0, &delta), Err(DeltaRefusal::Twice { round: 4 }));
    assert_eq!(world.check(2, 0, &delta), Err(DeltaRefusal::Copy { of: WorkerId(1) }));
    world.keeper.average(&[WorkerId(1)]).unwrap();

    // The next round: the same numbers under a new header are a replay.
    world.published = world.keeper.files().unwrap().published(5);
    let replay = world.delta(0, 0.01);
    assert_eq!(world.check(3, 0, &replay), Err(DeltaRefusal::Copy { of: WorkerId(1) }));
    // And a length twenty times the last round's is too much.
    let long = world.delta(0, 0.2);
    assert!(matches!(world.check(3, 0, &long), Err(DeltaRefusal::Norm { .. })));
    let fine = world.delta(0, 0.05);
    world.check(3, 0, &fine).unwrap();
}

#[test]
fn beside_two_others_a_stranger_is_known_in_the_first_round_too() {
    let mut world = World::new(RULES);
    for (worker, value) in [(1, 0.01), (2, 0.011), (3, 0.4)] {
        let delta = world.delta(1, value);
        world.check(worker, 1, &delta).unwrap();
    }
    let before = world.keeper.weights().clone();
    let averaged = world.keeper.average(&[1, 2, 3].map(WorkerId)).unwrap();
    assert_eq!(averaged.dropped.iter().map(|(worker, _)| worker.0).collect::<Vec<_>>(), [3]);
    let moved = world.keeper.weights().blocks[1][0][0] - before.blocks[1][0][0];
    assert!((moved - 0.0105).abs() < 1e-6, "the mean of the other two, not {moved}");
}

#[test]
fn a_block_is_averaged_over_its_replicas_and_the_table_over_everybody() {
    let mut world = World::new(RULES);
    for (worker, block, value) in [(1, 0, 0.01), (2, 0, 0.03), (3, 1, 0.02)] {
        let delta = world.delta(block, value);
        world.check(worker, block, &delta).unwrap();
    }
    let before = world.keeper.weights().clone();
    let averaged = world.keeper.average(&[1, 2, 3].map(WorkerId)).unwrap();
    assert_eq!(averaged.updated, [true, true]);
    let after = world.keeper.weights();
    let close = |found: f32, wanted: f32| assert!((found - wanted).abs() < 1e-6, "{found} is not {wanted}");
    close(after.table[7] - before.table[7], 0.02);
    close(after.blocks[0][3][0] - before.blocks[0][3][0], 0.02);
    close(after.blocks[1][3][0] - before.blocks[1][3][0], 0.02);
    // Who was not accepted in the end is not in it.
    world.published = world.keeper.files().unwrap().published(5);
    for (worker, value) in [(1, 0.04), (2, -0.04)] {
        let delta = world.delta(0, value);
        world.check(worker, 0, &delta).unwrap();
    }
    let before = world.keeper.weights().clone();
    let averaged = world.keeper.average(&[WorkerId(1)]).unwrap();
    assert_eq!(averaged.updated, [true, false]);
    close(world.keeper.weights().blocks[0][3][0] - before.blocks[0][3][0], 0.04);
    assert_eq!(world.keeper.weights().blocks[1], before.blocks[1], "an empty set keeps the old block");
}

#[test]
fn a_keeper_goes_on_from_its_files_to_the_same_bits() {
    let outer = OuterStep::Nesterov { learning_rate: 0.7, momentum: 0.9 };
    let aggregator = Aggregator::CentredClip { radius: None, iterations: 2 };
    let rules = Rules { outer, aggregator, ..RULES };
    let mut world = World::new(rules);
    let round = |world: &mut World, shift: f32| {
        for (worker, block, value) in [(1, 0, 0.01), (2, 0, 0.02), (3, 1, 0.03)] {
            let delta = world.delta(block, value + shift);
            world.check(worker, block, &delta).unwrap();
        }
        world.keeper.average(&[1, 2, 3].map(WorkerId)).unwrap();
        world.published = world.keeper.files().unwrap().published(world.published.round + 1);
    };
    round(&mut world, 0.001);
    let files = world.keeper.files().unwrap();
    let all: Vec<&Vec<u8>> = files.blocks.iter().chain([&files.table]).collect();
    let keeper = Keeper::resume(&run(), &all, files.outer.as_deref(), rules).unwrap();
    let mut resumed = World { keeper, published: world.published.clone() };
    assert_eq!(resumed.keeper.files().unwrap().published(5), world.published);
    round(&mut world, 0.002);
    round(&mut resumed, 0.002);
    assert_eq!(world.published, resumed.published);
    assert!(world.published.outer.is_some(), "momentum is part of the state");

    let damaged = Keeper::resume(&run(), &all, Some(&[1, 2, 3]), rules);
    assert!(matches!(damaged.err(), Some(KeeperError::Outer(_))));
}
