//! Deltas before and after they touch the weights: what is refused, and what an average is.

#![allow(clippy::unwrap_used)]

use engine::aggregation::{
    Aggregator, OuterStep,
    server::{Rules, Server, ServerError},
};
use protocol::{
    blob::BlobHash,
    delta::{DeltaEncoding, DeltaError, DeltaHeader, DeltaRefusal, encode},
    published::Published,
    worker_id::WorkerId,
};
use testkit::fixtures::block_run as run;

const RULES: Rules = Rules {
    aggregator: Aggregator::Mean,
    outer: OuterStep::Mean,
    largest: 0.5,
    norm_limit: Some(10.0),
    suspicious: true,
};

struct Setup {
    server: Server,
    published: Published,
}

impl Setup {
    fn new(rules: Rules) -> Self {
        let server = Server::draw(&run(), 3, rules).unwrap();
        let published = server.files().unwrap().published(4);
        Self { server, published }
    }

    fn header(&self, block: u32) -> DeltaHeader {
        DeltaHeader {
            round: self.published.round,
            block,
            base: self.published.blocks[block as usize].hash,
            table: self.published.table.hash,
            encoding: DeltaEncoding::F32,
            lengths: self.server.weights().lengths(block),
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
        self.server.check(WorkerId(worker), block, &published, bytes)
    }
}

#[test]
fn every_kind_of_wrong_delta_is_refused_and_the_weights_stay() {
    let mut setup = Setup::new(RULES);
    let before = setup.server.weights().clone();
    let header = setup.header(1);
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
        match setup.check(1, 1, &bytes) {
            Err(DeltaRefusal::Malformed(error)) if expected(&error) => {}
            other => panic!("{other:?}"),
        }
    }
    let empty = setup.delta(1, 0.0);
    assert_eq!(setup.check(1, 1, &empty), Err(DeltaRefusal::Empty));
    let averaged = setup.server.average(&[WorkerId(1)]).unwrap();
    assert_eq!(averaged.updated, [false, false], "nothing has passed");
    assert_eq!(setup.server.weights(), &before);
}

#[test]
fn copies_replays_and_deltas_far_too_long_are_refused() {
    let mut setup = Setup::new(RULES);
    let delta = setup.delta(0, 0.01);
    setup.check(1, 0, &delta).unwrap();
    assert_eq!(setup.check(1, 0, &delta), Err(DeltaRefusal::Twice { round: 4 }));
    assert_eq!(setup.check(2, 0, &delta), Err(DeltaRefusal::Copy { of: WorkerId(1) }));
    setup.server.average(&[WorkerId(1)]).unwrap();

    // The next round: the same numbers under a new header are a replay.
    setup.published = setup.server.files().unwrap().published(5);
    let replay = setup.delta(0, 0.01);
    assert_eq!(setup.check(3, 0, &replay), Err(DeltaRefusal::Copy { of: WorkerId(1) }));
    // And a length twenty times the last round's is too much.
    let long = setup.delta(0, 0.2);
    assert!(matches!(setup.check(3, 0, &long), Err(DeltaRefusal::Norm { .. })));
    let fine = setup.delta(0, 0.05);
    setup.check(3, 0, &fine).unwrap();
}

#[test]
fn a_delta_far_longer_than_two_others_is_dropped_in_the_first_round_too() {
    let mut setup = Setup::new(RULES);
    for (worker, value) in [(1, 0.01), (2, 0.011), (3, 0.4)] {
        let delta = setup.delta(1, value);
        setup.check(worker, 1, &delta).unwrap();
    }
    let before = setup.server.weights().clone();
    let averaged = setup.server.average(&[1, 2, 3].map(WorkerId)).unwrap();
    assert_eq!(averaged.dropped.iter().map(|(worker, _)| worker.0).collect::<Vec<_>>(), [3]);
    let moved = setup.server.weights().blocks[1][0][0] - before.blocks[1][0][0];
    assert!((moved - 0.0105).abs() < 1e-6, "the mean of the other two, not {moved}");
}

#[test]
fn a_block_is_averaged_over_its_replicas_and_the_table_over_everybody() {
    let mut setup = Setup::new(RULES);
    for (worker, block, value) in [(1, 0, 0.01), (2, 0, 0.03), (3, 1, 0.02)] {
        let delta = setup.delta(block, value);
        setup.check(worker, block, &delta).unwrap();
    }
    let before = setup.server.weights().clone();
    let averaged = setup.server.average(&[1, 2, 3].map(WorkerId)).unwrap();
    assert_eq!(averaged.updated, [true, true]);
    let after = setup.server.weights();
    let close = |found: f32, wanted: f32| assert!((found - wanted).abs() < 1e-6, "{found} is not {wanted}");
    close(after.table[7] - before.table[7], 0.02);
    close(after.blocks[0][3][0] - before.blocks[0][3][0], 0.02);
    close(after.blocks[1][3][0] - before.blocks[1][3][0], 0.02);
    // Who was not accepted in the end is not in it.
    setup.published = setup.server.files().unwrap().published(5);
    for (worker, value) in [(1, 0.04), (2, -0.04)] {
        let delta = setup.delta(0, value);
        setup.check(worker, 0, &delta).unwrap();
    }
    let before = setup.server.weights().clone();
    let averaged = setup.server.average(&[WorkerId(1)]).unwrap();
    assert_eq!(averaged.updated, [true, false]);
    close(setup.server.weights().blocks[0][3][0] - before.blocks[0][3][0], 0.04);
    assert_eq!(setup.server.weights().blocks[1], before.blocks[1], "an empty set keeps the old block");
}

#[test]
fn a_server_resumed_from_its_files_gives_the_same_bits() {
    let outer = OuterStep::Nesterov { learning_rate: 0.7, momentum: 0.9 };
    let aggregator = Aggregator::CentredClip { radius: None, iterations: 2 };
    let rules = Rules { outer, aggregator, ..RULES };
    let mut setup = Setup::new(rules);
    let round = |setup: &mut Setup, shift: f32| {
        for (worker, block, value) in [(1, 0, 0.01), (2, 0, 0.02), (3, 1, 0.03)] {
            let delta = setup.delta(block, value + shift);
            setup.check(worker, block, &delta).unwrap();
        }
        setup.server.average(&[1, 2, 3].map(WorkerId)).unwrap();
        setup.published = setup.server.files().unwrap().published(setup.published.round + 1);
    };
    round(&mut setup, 0.001);
    let files = setup.server.files().unwrap();
    let all: Vec<&Vec<u8>> = files.blocks.iter().chain([&files.table]).collect();
    let server = Server::resume(&run(), &all, files.outer.as_deref(), rules).unwrap();
    let mut resumed = Setup { server, published: setup.published.clone() };
    assert_eq!(resumed.server.files().unwrap().published(5), setup.published);
    round(&mut setup, 0.002);
    round(&mut resumed, 0.002);
    assert_eq!(setup.published, resumed.published);
    assert!(setup.published.outer.is_some(), "momentum is part of the state");

    let damaged = Server::resume(&run(), &all, Some(&[1, 2, 3]), rules);
    assert!(matches!(damaged.err(), Some(ServerError::Outer(_))));
    // One empty state: as of a run without blocks.
    let of_another = Server::resume(&run(), &all, Some(&[1, 0, 0]), rules);
    assert!(matches!(of_another.err(), Some(ServerError::Outer(_))));
}
