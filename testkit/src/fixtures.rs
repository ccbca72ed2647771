//! Small runs for tests. A test that needs another changes the fields it is about.

use protocol::{
    delta::DeltaEncoding,
    spec::{BlockSpec, ModelSpec, Moments, OptimizerSpec, RunSpec},
    tensor::Encoding,
};

/// AdamW as the golden vectors have it: betas 0.9 and 0.95, decay 0.1, clipping at 1.
pub fn optimizer() -> OptimizerSpec {
    OptimizerSpec { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip_norm: 1.0 }
}

/// A run of pipeline mode that takes milliseconds a step: two untied layers of width 8, two micro-batches of two
/// sequences of five tokens, a vocabulary of 11, f32 on the wire.
pub fn run() -> RunSpec {
    RunSpec {
        name: "test".into(),
        model: ModelSpec {
            vocabulary: 11,
            positions: 6,
            width: 8,
            heads: 2,
            layers: 2,
            tie_embeddings: false,
        },
        optimizer: optimizer(),
        sequences: 2,
        context: 5,
        micro_batches: 2,
        recompute: false,
        wire: Encoding::F32,
        moments: Moments::Full,
        trains: true,
        cache_bytes: 0,
        blocks: None,
    }
}

/// The same model in block mode: two blocks of one layer each, sigma from 1 to 10, deltas in f32.
pub fn block_run() -> RunSpec {
    let blocks = BlockSpec {
        count: 2,
        sigma_min: 1.0,
        sigma_max: 10.0,
        p_mean: -1.2,
        p_std: 1.2,
        gamma: 0.1,
        delta: DeltaEncoding::F32,
    };
    RunSpec { micro_batches: 1, moments: Moments::None, blocks: Some(blocks), ..run() }
}
