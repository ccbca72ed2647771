//! Golden vectors on the CPU: this crate's own kernels, and the WebGPU path on burn's CPU backend.

#![allow(clippy::unwrap_used)]

use engine::device::Device;
use futures::executor::block_on;
use testkit::golden::{self, DRAWN, Scope, Splits, Tolerances, check, drawn, folder};

fn passes(device: &Device, scope: &Scope) {
    let folder = folder().unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<&str> = folder.names.iter().map(String::as_str).collect();
    match block_on(check(&names, &|name| folder.read(name), device, &Tolerances::CPU, scope)) {
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
fn tolerances_follow_from_the_references_own_error() {
    let folder = folder().unwrap();
    // Another set's reference has another error, which says nothing about these tolerances.
    if golden::is_own(&folder.path) {
        golden::require_justified(&|name| folder.read(name)).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn drawn_weights_are_the_same_bits_as_in_a_browser() {
    assert_eq!(block_on(drawn()), Ok(DRAWN));
}
