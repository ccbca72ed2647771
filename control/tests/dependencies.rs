//! Which crate of the workspace may know which: the rule that keeps decisions apart from IO.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use serde_json::Value;

/// Whatever does IO, or computes with tensors.
const IO_AND_TENSORS: [&str; 12] = [
    "axum",
    "burn",
    "gemm",
    "hyper",
    "object_store",
    "reqwest",
    "rusqlite",
    "tokio",
    "tokio-tungstenite",
    "tower-http",
    "web-sys",
    "wgpu",
];

/// Crates of the workspace, with what each needs to be built; what only its tests need does not count.
fn workspace() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let needs = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap();
        all.iter().filter(|dependency| dependency["kind"] != "dev").map(name).collect()
    };
    metadata["packages"].as_array().unwrap().iter().map(|package| (name(package), needs(package))).collect()
}

/// The crates of the workspace that a crate reaches, over however many others.
fn reaches(crates: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![from.to_owned()];
    while let Some(next) = left.pop() {
        for needed in crates[&next].iter().filter(|needed| crates.contains_key(*needed)) {
            if found.insert(needed.clone()) {
                left.push(needed.clone());
            }
        }
    }
    found
}

#[test]
fn crates_know_only_what_the_layout_lets_them_know() {
    let crates = workspace();
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(reaches(&crates, "protocol"), names(&[]), "protocol knows nobody");
    assert_eq!(reaches(&crates, "control"), names(&["protocol"]), "control knows protocol");
    for (from, forbidden) in [
        ("engine", ["control", "worker", "simulation", "coordinator"].as_slice()),
        ("worker", &["simulation", "coordinator"]),
        ("simulation", &["coordinator"]),
        ("native-worker", &["simulation", "coordinator"]),
        ("wasm-worker", &["simulation", "coordinator"]),
        ("www", &["simulation", "coordinator"]),
        // What is fuzzed does not know that it is.
        ("coordinator", &["fuzz"]),
    ] {
        let both: Vec<String> = reaches(&crates, from).intersection(&names(forbidden)).cloned().collect();
        assert!(both.is_empty(), "{from} must not know {both:?}");
    }
}

#[test]
fn decisions_and_the_wire_have_nothing_that_does_io() {
    let crates = workspace();
    let allowed = ["libm", "protocol", "serde", "thiserror"].map(str::to_owned);
    assert_eq!(crates["control"], BTreeSet::from(allowed), "what control needs is listed here with care");
    let io: Vec<&String> =
        crates["protocol"].iter().filter(|name| IO_AND_TENSORS.contains(&name.as_str())).collect();
    assert!(io.is_empty(), "protocol must not need {io:?}");
}
