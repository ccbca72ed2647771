//! Runs, workers and models for tests.

use protocol::{
    delta::DeltaEncoding,
    message::{Timings, WorkerKind},
    spec::{BlockSpec, Hop, ModelSpec, Moments, OptimizerSpec, Part, RunSpec},
    tensor::Encoding,
    view::{BlockView, CurvePoint, Phase, ReplicaView, RoundsView, RunView, WorkerState, WorkerView},
};

pub(crate) fn hop(index: u32, embedding: bool, first_layer: u32, end_layer: u32, head: bool) -> Hop {
    Hop { index, part: Part { embedding, first_layer, end_layer, head } }
}

/// GPT-2 small.
pub(crate) fn model(tie_embeddings: bool) -> ModelSpec {
    ModelSpec { vocabulary: 50257, positions: 1024, width: 768, heads: 12, layers: 12, tie_embeddings }
}

pub(crate) fn point(step: u64, train_loss: f64) -> CurvePoint {
    CurvePoint {
        step,
        train_loss,
        validation_loss: None,
        learning_rate: 0.1,
        tokens_per_second: 1.0,
        evaluation: None,
        participation: None,
    }
}

/// 400 rounds of 10 local steps, three blocks.
pub(crate) fn rounds() -> RoundsView {
    let block = |sigma_min, sigma_max| BlockView { sigma_min, sigma_max, ..BlockView::default() };
    RoundsView {
        round: 0,
        rounds: 400,
        local_steps: 10,
        blocks: vec![block(4.29, 10.0), block(1.62, 4.29), block(1.0, 1.62)],
        deadline_seconds: 0.0,
        participation: None,
        mean_participation: None,
        round_seconds: None,
        accepted: 0,
        refused: 0,
        bytes_down: 0,
        bytes_up: 0,
        aggregator: "mean".into(),
        evaluation: None,
    }
}

/// A run of pipeline mode without workers: 2 sequences of 8 tokens, 4 micro-batches.
pub(crate) fn pipeline(phase: Phase) -> RunView {
    RunView {
        run: RunSpec {
            name: "run".into(),
            model: model(false),
            optimizer: OptimizerSpec {
                beta1: 0.9,
                beta2: 0.95,
                epsilon: 1e-8,
                weight_decay: 0.1,
                clip_norm: 1.0,
            },
            sequences: 2,
            context: 8,
            micro_batches: 4,
            recompute: false,
            wire: Encoding::F32,
            moments: Moments::Full,
            trains: true,
            cache_bytes: 0,
            blocks: None,
        },
        phase,
        reason: String::new(),
        epoch: 1,
        step: 0,
        steps: 100,
        workers_wanted: 2,
        parameters: 124_000_000,
        corpus: "the text in novels.txt".into(),
        tokenizer: "bytes".into(),
        train_tokens: 1_000_000,
        train_loss: None,
        validation_loss: None,
        tokens_per_second: 0.0,
        efficiency: None,
        balance: None,
        predicted_step_seconds: None,
        snapshot_step: None,
        snapshot_state: None,
        rounds: None,
        refusals: Default::default(),
        workers: Vec::new(),
    }
}

/// A run of block mode without workers.
pub(crate) fn blocks(phase: Phase) -> RunView {
    let mut run = pipeline(phase);
    run.run.blocks = Some(BlockSpec {
        count: 3,
        sigma_min: 1.0,
        sigma_max: 10.0,
        p_mean: -1.2,
        p_std: 1.2,
        gamma: 0.1,
        delta: DeltaEncoding::F32,
    });
    run.rounds = Some(rounds());
    run
}

/// A spare, heard of just now.
pub(crate) fn worker(id: u64, name: &str) -> WorkerView {
    WorkerView {
        id,
        name: name.into(),
        kind: WorkerKind::Browser,
        state: WorkerState::Spare,
        backend: None,
        device: String::new(),
        layer_seconds: 0.0,
        pace: 1.0,
        link: None,
        memory_bytes: 0,
        stage_bytes: 0,
        status: Default::default(),
        hops: Vec::new(),
        timings: Timings::default(),
        accepted_micro_batches: 0,
        replica: None,
        rtt_ms: None,
        silent_seconds: 0.0,
    }
}

/// A worker at this block.
pub(crate) fn at_block(id: u64, name: &str, block: u32) -> WorkerView {
    let replica = ReplicaView { block: Some(block), ..ReplicaView::default() };
    WorkerView { state: WorkerState::Training, replica: Some(replica), ..worker(id, name) }
}

/// A worker with these layers of pipeline mode.
pub(crate) fn at_layers(id: u64, name: &str, hop: Hop) -> WorkerView {
    WorkerView { state: WorkerState::Training, hops: vec![hop], ..worker(id, name) }
}
