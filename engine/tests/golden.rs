//! Golden vectors on the CPU: this crate's own kernels, and the WebGPU path on burn's CPU backend.
//!
//! The folder is COHORT_GOLDEN or the repository's own copy.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use engine::{
    device::Device,
    golden::{DRAWN, Scope, Splits, Tolerances, check, drawn},
};

fn folder() -> PathBuf {
    match std::env::var_os("COHORT_GOLDEN") {
        Some(folder) => folder.into(),
        None => "../tests/golden".into(),
    }
}

fn passes(device: &Device, scope: &Scope) {
    let folder = folder();
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let source = |name: &str| std::fs::read(folder.join(name)).ok();
    let outcome = futures::executor::block_on(check(&names, &source, device, &Tolerances::CPU, scope));
    match outcome {
        Ok(report) => println!("{report}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn kernels_agree_with_the_golden_vectors_in_every_split() {
    passes(&Device::Cpu, &Scope::full());
}

#[test]
fn tensors_agree_with_the_golden_vectors() {
    // The same code as on WebGPU; burn's CPU backend is slow, so not every split of the same arithmetic.
    let scope = Scope { splits: Splits::Two, ..Scope::full() };
    passes(&Device::flex(), &scope);
}

#[test]
fn drawn_weights_are_the_same_bits_as_in_a_browser() {
    assert_eq!(futures::executor::block_on(drawn()), Ok(DRAWN));
}
