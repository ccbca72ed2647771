//! The seeds in `corpus/` are what our own code writes today. `UPDATE_SEEDS=1 cargo test -p fuzz --test fuzz_seeds`
//! writes them anew.
#![allow(clippy::unwrap_used)]

#[path = "../corpus/mod.rs"]
mod corpus;
mod frames;
#[path = "../../../protocol/tests/common/mod.rs"]
mod messages;
mod texts;
mod weights;

use std::{env, fs};

use fuzz::delta::{ENCODINGS, LENGTHS, header};
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use protocol::delta;

/// Names, and what is in the files.
type Seeds = Vec<(String, Vec<u8>)>;

/// A source of the same values each time.
fn runner() -> TestRunner {
    TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn seeds(target: &str) -> Seeds {
    match target {
        "frame" => frames::seeds(),
        "delta" => deltas(),
        "weights" => weights::seeds(),
        "ranges" => texts::ranges(),
        "relay" => schedules(),
        "run_toml" => texts::run_tomls(),
        other => panic!("no seeds are made for {other}"),
    }
}

/// One of each encoding.
fn deltas() -> Seeds {
    let tensors: Vec<Vec<f32>> =
        LENGTHS.iter().map(|length| (0..*length).map(|n| (n as f32 - 7.5) / 4.0).collect()).collect();
    let delta = |(number, encoding): (usize, &_)| {
        let bytes = delta::encode(&header(*encoding), &tensors, Some(&mut Vec::new())).unwrap();
        (format!("real-{number}"), bytes)
    };
    ENCODINGS.iter().enumerate().map(delta).collect()
}

/// Bytes that are read as plans and frames of which some pass.
fn schedules() -> Seeds {
    let mut runner = runner();
    let mut draw = || vec(any::<u8>(), 60..240).new_tree(&mut runner).unwrap().current();
    let mut passing = Seeds::new();
    while passing.len() < 12 {
        let bytes = draw();
        if fuzz::relay::check(&bytes) {
            passing.push((format!("real-{:02}", passing.len()), bytes));
        }
    }
    passing
}

#[test]
fn seeds_are_what_our_code_writes() {
    for target in fuzz::TARGETS {
        let folder = corpus::folder(target.name);
        if env::var_os("UPDATE_SEEDS").is_some() {
            fs::create_dir_all(&folder).unwrap();
            for seed in corpus::of(target.name).iter().filter(|seed| !seed.is_found()) {
                fs::remove_file(folder.join(&seed.name)).unwrap();
            }
            for (name, bytes) in seeds(target.name) {
                fs::write(folder.join(name), bytes).unwrap();
            }
        }
        let kept: Seeds = corpus::of(target.name)
            .into_iter()
            .filter(|seed| !seed.is_found())
            .map(|seed| (seed.name, seed.bytes))
            .collect();
        let mut made = seeds(target.name);
        made.sort();
        let names = |seeds: &Seeds| seeds.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&kept), names(&made), "{}: UPDATE_SEEDS=1 writes them anew", target.name);
        for ((name, kept), (_, made)) in kept.iter().zip(&made) {
            assert!(kept == made, "{}/{name}: UPDATE_SEEDS=1 writes the seeds anew", target.name);
        }
    }
}
