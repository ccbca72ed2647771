//! What comes from outside, fed with arbitrary bytes: each target holds what it reads against what must always be true.
//!
//! | target | reads |
//! |---|---|
//! | [`frame`] | frames of the session, and the tensors in them |
//! | [`delta`] | files of what was learned in a round |
//! | [`weights`] | safetensors files and `config.json` |
//! | [`ranges`] | the ranges of blobs in HTTP's headers |
//! | [`relay`] | tensor frames in any order, from anybody, against a plan |
//! | [`run_toml`] | `run.toml` |
//!
//! A target is a function of the bytes that panics where something is not as it must be, and says whether it took them
//! for something sound. `tests/fuzz_briefly.rs` calls it with the seeds in `corpus/` and changed copies of them, in a few
//! seconds and the same ones each time; `cargo xtask fuzz` lets libFuzzer look for inputs, for as long as asked. An input
//! that broke something is kept in the corpus, under a name that begins with `found-`.

#![deny(missing_docs, unreachable_pub)]

pub mod delta;
mod finite;
pub mod frame;
mod memory;
pub mod ranges;
pub mod relay;
pub mod run_toml;
pub mod weights;

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: of its module, of its folder in `corpus/`, and after `fuzz_` of its program.
    pub name: &'static str,
    /// Reads the bytes; true where they were taken for something sound.
    ///
    /// # Panics
    /// When something is not as it must be.
    pub check: fn(&[u8]) -> bool,
}

/// All targets.
pub const TARGETS: [Target; 6] = [
    Target { name: "frame", check: frame::check },
    Target { name: "delta", check: delta::check },
    Target { name: "weights", check: weights::check },
    Target { name: "ranges", check: ranges::check },
    Target { name: "relay", check: relay::check },
    Target { name: "run_toml", check: run_toml::check },
];
