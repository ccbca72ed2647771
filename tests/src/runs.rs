//! The `run.toml`s of the tests.

use std::{
    env,
    path::{Path, PathBuf},
};

/// A model small enough that fifty steps take seconds in a test, with everything a large one has.
pub struct TinyRun {
    pub layers: u32,
    pub width: u32,
    pub tied: bool,
    pub steps: u64,
    /// In a step.
    pub micro_batches: u32,
    /// Workers to wait for; each takes one stage.
    pub workers: usize,
    /// Steps between measurements on the held-out split; 0: never.
    pub validate_every: u64,
    pub snapshot_every: u64,
    pub lease_seconds: f64,
    /// f32, f16 or int8.
    pub wire: &'static str,
}

impl Default for TinyRun {
    fn default() -> Self {
        Self {
            layers: 4,
            width: 32,
            tied: false,
            steps: 50,
            micro_batches: 4,
            workers: 1,
            validate_every: 0,
            snapshot_every: 20,
            lease_seconds: 30.0,
            wire: "f32",
        }
    }
}

impl TinyRun {
    pub fn toml(&self) -> String {
        // A megabyte of real text that lies in this crate.
        let corpus = file_of_this_crate("data/wikitext-2/test.txt");
        let Self { layers, width, tied, steps, micro_batches, workers, .. } = self;
        let Self { validate_every, snapshot_every, lease_seconds, wire, .. } = self;
        let heartbeat_seconds = lease_seconds / 6.0;
        format!(
            r#"
name = "tiny"

[model]
layers = {layers}
width = {width}
heads = 4
context = 32
tie_embeddings = {tied}

[data]
source = '{}'
tokenizer = "bytes"

[training]
steps = {steps}
micro_batches = {micro_batches}
sequences = 4
context = 32
seed = 7
learning_rate = 3e-3
warmup_steps = 5
validate_every = {validate_every}
validation_batches = 2

[pipeline]
stages = {workers}
start_with = {workers}
wire = "{wire}"

[snapshots]
every = {snapshot_every}

[session]
heartbeat_seconds = {heartbeat_seconds}
lease_seconds = {lease_seconds}
"#,
            corpus.display()
        )
    }
}

/// A run of block mode, small enough for a test, with everything a large one has.
pub struct TinyBlocks {
    /// Of one layer each.
    pub blocks: u32,
    pub width: u32,
    /// Local steps of each block.
    pub steps: u64,
    pub local_steps: u32,
    pub validate_every: u64,
    pub lease_seconds: f64,
    /// `webster` or a path.
    pub source: String,
    /// Further lines of `[rounds]`.
    pub rounds: &'static str,
}

impl Default for TinyBlocks {
    fn default() -> Self {
        Self {
            blocks: 3,
            width: 32,
            steps: 120,
            local_steps: 5,
            validate_every: 0,
            lease_seconds: 30.0,
            source: file_of_this_crate("data/wikitext-2/test.txt").display().to_string(),
            rounds: "",
        }
    }
}

impl TinyBlocks {
    pub fn toml(&self) -> String {
        let Self { blocks, width, steps, local_steps, validate_every, lease_seconds, source, rounds } = self;
        let heartbeat_seconds = lease_seconds / 6.0;
        format!(
            r#"
name = "tiny-blocks"
mode = "block"

[model]
layers = {blocks}
width = {width}
heads = 4
context = 32

[data]
source = '{source}'

[training]
steps = {steps}
sequences = 4
context = 32
seed = 7
learning_rate = 3e-3
warmup_steps = 5
validate_every = {validate_every}
validation_batches = 2

[blocks]
count = {blocks}

[rounds]
local_steps = {local_steps}
draws = 2
{rounds}

[snapshots]
every = {steps}

[session]
heartbeat_seconds = {heartbeat_seconds}
lease_seconds = {lease_seconds}
"#
        )
    }
}

/// A file that lies in this crate.
///
/// Asked of cargo when it runs, not when it compiles: clones may share a build folder, and with it this program.
pub fn file_of_this_crate(name: &str) -> PathBuf {
    Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join(name)
}
