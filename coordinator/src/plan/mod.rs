//! Who holds what: from measured workers to hops.

pub mod partition;

use protocol::spec::{Hop, ModelSpec, Part, RunSpec};

use crate::run::event::WorkerId;
use partition::Candidate;

/// How many stages a plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stages {
    /// As many as make the slowest stage fastest.
    Auto,
    /// Exactly this many, taken in the order of joining.
    Exactly(u32),
}

/// A worker as the planner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub worker: WorkerId,
    /// Seconds per micro-batch: one layer, the embedding, the head with its loss.
    pub layer_seconds: f64,
    pub embedding_seconds: f64,
    pub head_seconds: f64,
    /// 0: unknown, taken for enough.
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    pub worker: WorkerId,
    pub hops: Vec<Hop>,
}

/// A partition of the model over workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// From the embedding to the head.
    pub stages: Vec<Stage>,
    /// Holder of each hop.
    pub holders: Vec<WorkerId>,
    /// Predicted seconds per micro-batch of the slowest stage.
    pub slowest_seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("{have} of {want} workers are ready")]
    TooFew { have: u32, want: u32 },
    #[error(
        "the model does not fit: {have} workers have memory for {room} of {layers} layers; more workers or a smaller model would do"
    )]
    DoesNotFit { have: u32, room: u64, layers: u32 },
}

impl Plan {
    pub fn workers(&self) -> Vec<WorkerId> {
        self.stages.iter().map(|s| s.worker).collect()
    }

    pub fn stage(&self, worker: WorkerId) -> Option<&Stage> {
        self.stages.iter().find(|s| s.worker == worker)
    }

    /// Holder of the embedding.
    pub fn first(&self) -> Option<WorkerId> {
        self.holders.first().copied()
    }

    /// Holder of the head, who computes the loss.
    pub fn last(&self) -> Option<WorkerId> {
        self.holders.last().copied()
    }

    /// Most micro-batches a stage may have between forward and backward: as many as there are hops from
    /// its first one to the loss, so that the pipe is full and memory bounded (1F1B).
    pub fn window(&self, stage: &Stage) -> u32 {
        let first = stage.hops.first().map_or(0, |h| h.index);
        self.holders.len() as u32 - first
    }
}

/// Parameters of one transformer layer: `12 d^2 + 13 d`.
pub fn layer_parameters(model: &ModelSpec) -> u64 {
    let d = u64::from(model.width);
    12 * d * d + 13 * d
}

/// Parameters of the whole model.
pub fn parameters(model: &ModelSpec) -> u64 {
    let d = u64::from(model.width);
    let tables = u64::from(model.vocabulary) * if model.tie_embeddings { 1 } else { 2 };
    (tables + u64::from(model.positions)) * d + u64::from(model.layers) * layer_parameters(model) + 2 * d
}

/// Bytes a worker needs for one layer in training: weights, gradients and two moments in f32, and what
/// one micro-batch leaves behind for its backward pass (34 floats per position and feature, and three
/// attention maps a head: Korthikanti et al. 2022, counted in f32).
fn layer_bytes(run: &RunSpec) -> u64 {
    let [n, t, d] = [run.sequences, run.context, run.model.width].map(u64::from);
    let kept = if run.recompute { n * t * d } else { n * t * (34 * d + 3 * u64::from(run.model.heads) * t) };
    16 * layer_parameters(&run.model) + 4 * kept
}

/// The best plan for these workers.
pub fn make(run: &RunSpec, stages: Stages, workers: &[Measured]) -> Result<Plan, PlanError> {
    let have = workers.len() as u32;
    let want = match stages {
        Stages::Auto => 1,
        Stages::Exactly(n) => n,
    };
    if have < want {
        return Err(PlanError::TooFew { have, want });
    }
    let workers = match stages {
        Stages::Auto => workers,
        Stages::Exactly(n) => &workers[..n as usize],
    };
    let model = &run.model;
    let layer_bytes = layer_bytes(run);
    let candidates: Vec<Candidate> = workers
        .iter()
        .map(|w| Candidate {
            seconds_per_layer: w.layer_seconds,
            max_layers: match w.memory_bytes {
                0 => model.layers,
                bytes => (bytes / layer_bytes).min(u64::from(model.layers)) as u32,
            },
        })
        .collect();
    // Extras in units of a layer, by the mean worker: they belong to the shapes more than to the device.
    let mean = |part: fn(&Measured) -> f64| {
        workers.iter().map(|w| part(w) / w.layer_seconds).sum::<f64>() / workers.len() as f64
    };
    let (embedding, head) = (mean(|w| w.embedding_seconds), mean(|w| w.head_seconds));
    // A tied table keeps the head with the embedding.
    let (first_extra, last_extra) =
        if model.tie_embeddings { (embedding + head, 0.0) } else { (embedding, head) };
    let found = match stages {
        Stages::Auto => partition::partition_ordered(model.layers, &candidates, first_extra, last_extra),
        Stages::Exactly(_) => partition::partition_all(model.layers, &candidates, first_extra, last_extra),
    };
    let found = found.ok_or_else(|| PlanError::DoesNotFit {
        have,
        room: candidates.iter().map(|c| u64::from(c.max_layers)).sum(),
        layers: model.layers,
    })?;
    let counts: Vec<(WorkerId, u32)> =
        workers.iter().zip(&found.layers).filter(|(_, n)| **n > 0).map(|(w, n)| (w.worker, *n)).collect();
    Ok(lay_out(model, &counts, found.value))
}

/// Give consecutive layers to the stages, and the hops their numbers.
fn lay_out(model: &ModelSpec, counts: &[(WorkerId, u32)], slowest_seconds: f64) -> Plan {
    let last = counts.len() - 1;
    let returns = model.tie_embeddings && last > 0;
    let mut first_layer = 0;
    let mut stages = Vec::new();
    let mut holders = Vec::new();
    for (i, (worker, layers)) in counts.iter().enumerate() {
        let part = Part {
            embedding: i == 0,
            first_layer,
            end_layer: first_layer + layers,
            head: i == last && !returns,
        };
        first_layer += layers;
        holders.push(*worker);
        stages.push(Stage { worker: *worker, hops: vec![Hop { index: i as u32, part }] });
    }
    if returns {
        let part = Part { embedding: false, first_layer: model.layers, end_layer: model.layers, head: true };
        stages[0].hops.push(Hop { index: holders.len() as u32, part });
        holders.push(counts[0].0);
    }
    Plan { stages, holders, slowest_seconds }
}
