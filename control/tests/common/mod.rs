//! What tests of both modes share: settings, a worker's first words, and what every view must be.
// Each test binary uses a part of it.
#![allow(dead_code, clippy::unwrap_used)]

pub mod block;
pub mod lies;
pub mod pipeline;

use std::time::Duration;

use control::{Record, Settings, learning_rate::LearningRate, roster::Roster};
use protocol::{
    VERSION,
    message::{Hello, LinkSpeed, PassSeconds, Profile, WorkerKind},
    spec::{Backend, BlockSpec, ModelSpec, Moments, OptimizerSpec, RunSpec},
    tensor::Encoding,
    view::RunView,
};

/// Seconds of silence after which a worker of a test has vanished.
pub const LEASE: Duration = Duration::from_secs(30);

/// A small model of so many layers.
pub fn model(layers: u32) -> ModelSpec {
    ModelSpec { vocabulary: 16, positions: 8, width: 4, heads: 2, layers, tie_embeddings: false }
}

/// A run of that model, of M micro-batches.
pub fn run_spec(layers: u32, micro_batches: u32, blocks: Option<BlockSpec>) -> RunSpec {
    RunSpec {
        name: "test".into(),
        model: model(layers),
        optimizer: OptimizerSpec {
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
        },
        sequences: 2,
        context: 8,
        micro_batches,
        recompute: false,
        wire: Encoding::F32,
        moments: Moments::Full,
        trains: true,
        cache_bytes: 0,
        blocks,
    }
}

/// Settings of a run of so many steps.
pub fn settings(run: RunSpec, steps: u64, start_with: u32) -> Settings {
    Settings {
        run,
        steps,
        seed: 1,
        start_with,
        learning_rate: LearningRate { peak: 1e-3, floor: 1e-4, warmup_steps: 2, total_steps: steps },
        validate_every: 2,
        validation_batches: 2,
        snapshot_every: 3,
        heartbeat: Duration::from_secs(5),
        lease: LEASE,
        step_deadline: Duration::from_mins(10),
        max_workers: 8,
        texts_share: 0.2,
        corpus: "text".into(),
        tokenizer: "bytes".into(),
        train_tokens: 1000,
    }
}

/// What a native worker says first.
pub fn hello() -> Hello {
    Hello { protocol: VERSION, build: "test".into(), kind: WorkerKind::Native, name: "worker".into() }
}

/// Seconds both ways, of which the forward pass takes a third.
pub fn pass_seconds(seconds: f64) -> PassSeconds {
    PassSeconds { forward: seconds / 3.0, backward: seconds * 2.0 / 3.0 }
}

/// A profile of a device that takes so many seconds a layer.
pub fn profile(layer_seconds: f64, memory_bytes: u64, link: Option<LinkSpeed>) -> Profile {
    Profile {
        backend: Backend::Cpu,
        device: "test".into(),
        threads: 1,
        memory_bytes,
        layer: pass_seconds(layer_seconds),
        embedding: pass_seconds(0.1 * layer_seconds),
        head_seconds: 0.2 * layer_seconds,
        link,
    }
}

/// A view is JSON without loss: NaN or infinity anywhere would come back as nothing.
pub fn assert_view_is_json(view: &RunView) {
    let text = serde_json::to_string(view).unwrap();
    let back: RunView = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
    assert_eq!(&back, view);
}

/// What the roster counts as it goes is what counting finds.
pub fn assert_counts_are_right(roster: &Roster, now: Duration) {
    let profiled =
        roster.ids().iter().filter(|id| roster.get(**id).is_some_and(|w| w.profile().is_some())).count();
    assert_eq!(roster.profiled_count(), profiled);
    assert_eq!(roster.ready_count(now), roster.measured(now).len());
}

/// A line of the event log is JSON without loss.
pub fn assert_record_is_json(record: &Record) {
    let text = serde_json::to_string(record).unwrap();
    let back: Record = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
    assert_eq!(&back, record);
}
