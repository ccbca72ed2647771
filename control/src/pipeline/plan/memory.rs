//! Bytes that a worker's share takes.

use protocol::spec::{Hop, RunSpec};

/// Bytes a parameter takes: in a run that only writes texts, its weight in f32; else weight, gradient and two moments in f32; and twice its place in a snapshot, as the last
/// one is kept while the next is made.
fn parameter_bytes(run: &RunSpec) -> u64 {
    if !run.trains {
        return 4;
    }
    16 + 2 * run.moments.snapshot_bytes()
}

/// Floats that one layer keeps of a micro-batch for its backward pass: 34 per position and feature, and three attention
/// maps a head (Korthikanti et al. 2022, <https://arxiv.org/abs/2205.05198>, counted in f32).
pub fn kept_floats(run: &RunSpec) -> u64 {
    let [n, t, d, heads] = [run.sequences, run.context, run.model.width, run.model.heads].map(u64::from);
    n * t * (34 * d + 3 * heads * t)
}

/// Bytes for one layer with `in_flight` micro-batches between forward and backward: each leaves behind [`kept_floats`], or with
/// `recompute` its input only. Beside that its share of the texts' keys and values.
pub fn layer(run: &RunSpec, in_flight: u32) -> u64 {
    let [n, t, d] = [run.sequences, run.context, run.model.width].map(u64::from);
    let whole = kept_floats(run);
    // Recomputing makes the whole of one layer at a time.
    let kept = if run.recompute { n * t * d * u64::from(in_flight) } else { whole * u64::from(in_flight) };
    let kept = if run.trains { kept } else { 0 };
    let texts = run.cache_bytes / u64::from(run.model.layers.max(1));
    parameter_bytes(run) * run.model.layer_parameters() + 4 * kept + texts
}

/// Bytes for the embedding.
pub fn embedding(run: &RunSpec) -> u64 {
    parameter_bytes(run) * run.model.embedding_parameters()
}

/// Bytes for the head: its parameters, and the logits with their gradient.
pub fn head(run: &RunSpec) -> u64 {
    let [n, t, v] = [run.sequences, run.context, run.model.vocabulary].map(u64::from);
    let logits = if run.trains { 2 * 4 * n * t * v } else { 0 };
    parameter_bytes(run) * run.model.head_parameters() + logits
}

/// Bytes for a worker's hops.
pub fn stage(run: &RunSpec, hops: &[Hop], in_flight: u32) -> u64 {
    let part = |hop: &Hop| {
        let layers = u64::from(hop.part.end_layer - hop.part.first_layer);
        layers * layer(run, in_flight)
            + if hop.part.embedding { embedding(run) } else { 0 }
            + if hop.part.head { head(run) } else { 0 }
    };
    hops.iter().map(part).sum()
}
