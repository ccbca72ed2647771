//! Leaves the names of functions out of the finished module; they are more than a third of it. The training
//! program is built with this too.
//!
//! This stands in for wasm-opt. What is left of its gain after compression is nothing, it takes minutes on the
//! training program, and version 108, which Debian 12 has, breaks modules with two tables, as wasm-bindgen makes
//! them: it writes the export of one in place of the other.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=../www/build.rs");
    if env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "wasm") {
        println!("cargo::rustc-link-arg-bins=--strip-all");
        // wasm-bindgen goes by this list of what the module uses.
        println!("cargo::rustc-link-arg-bins=--keep-section=target_features");
    }
}
