//! Every target with its seeds and with changed copies of them: the same ones each time, in a few seconds.
//! `cargo xtask fuzz` looks further.
#![allow(clippy::unwrap_used)]

mod corpus;

use std::{cell::Cell, fmt};

use fuzz::Target;
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

/// Changed copies of each target's seeds.
const CASES: u32 = 4000;
/// Bytes that mean something in a header, in HTTP or in TOML.
const TELLING: [u8; 16] = *b"\0\x01\x7f\x80\xff\"=-+.[]{,9\n";

/// A change of a file.
#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// A piece of another seed, in the place of as many bytes.
    Splice(Index, Index, usize),
    Cut(Index),
}

/// Bytes, shown as one would write them.
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

fn change() -> impl Strategy<Value = Change> {
    let place = any::<Index>;
    prop_oneof![
        (place(), prop_oneof![any::<u8>(), select(&TELLING[..])]).prop_map(|(at, to)| Change::Set(at, to)),
        (place(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (place(), vec(any::<u8>(), 1..9)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (place(), 1..9_usize).prop_map(|(at, bytes)| Change::Remove(at, bytes)),
        (place(), place(), 1..33_usize).prop_map(|(at, from, bytes)| Change::Splice(at, from, bytes)),
        place().prop_map(Change::Cut),
    ]
}

fn changed(seed: &[u8], other: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for change in changes.iter().filter(|_| !seed.is_empty()) {
        let length = bytes.len();
        let place = |at: &Index| at.index(length + 1);
        match change {
            Change::Set(at, to) => bytes.iter_mut().skip(place(at)).take(1).for_each(|byte| *byte = *to),
            Change::Flip(at, bit) => {
                bytes.iter_mut().skip(place(at)).take(1).for_each(|byte| *byte ^= 1 << bit);
            }
            Change::Insert(at, new) => drop(bytes.splice(place(at)..place(at), new.iter().copied())),
            Change::Remove(at, count) => {
                let at = place(at);
                drop(bytes.drain(at..bytes.len().min(at + count)));
            }
            Change::Splice(at, from, count) => {
                let (at, from) = (place(at), from.index(other.len() + 1));
                let piece = &other[from..other.len().min(from + count)];
                drop(bytes.splice(at..bytes.len().min(at + count), piece.iter().copied()));
            }
            Change::Cut(at) => bytes.truncate(place(at)),
        }
    }
    bytes
}

/// What is real is taken, and what once broke a target does not any more.
#[test]
fn seeds_hold() {
    for target in fuzz::TARGETS {
        let seeds = corpus::of(target.name);
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for seed in seeds {
            println!("{}/{}", target.name, seed.name);
            let taken = (target.check)(&seed.bytes);
            assert!(taken || seed.is_found(), "{}/{} is real, and was not taken", target.name, seed.name);
        }
    }
}

#[test]
fn changed_seeds_hold() {
    let faults: Vec<String> = fuzz::TARGETS.iter().filter_map(|target| fault(*target)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What is wrong with a target.
fn fault(target: Target) -> Option<String> {
    let seeds: Vec<Vec<u8>> = corpus::of(target.name).into_iter().map(|seed| seed.bytes).collect();
    let strategy = (select(seeds.clone()), select(seeds), vec(change(), 0..6))
        .prop_map(|(seed, other, changes)| Input(changed(&seed, &other, &changes)));
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let taken = Cell::new(0);
    let result = TestRunner::new_with_rng(config, rng).run(&strategy, |input| {
        taken.set(taken.get() + u32::from((target.check)(&input.0)));
        Ok(())
    });
    if let Err(error) = result {
        return Some(format!("{}: {error}", target.name));
    }
    // Changes that nothing survives, or that all survive, would test little.
    let taken = taken.get();
    let fault = format!("{}: {taken} of {CASES} were taken", target.name);
    (!(CASES / 100..CASES).contains(&taken)).then_some(fault)
}
