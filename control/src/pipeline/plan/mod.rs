//! Who holds what: from measured workers to hops.

pub mod memory;
pub mod partition;
pub mod schedule;

use protocol::{
    limits::LOSSES,
    message::{LinkSpeed, PassSeconds},
    spec::{Hop, ModelSpec, Part, RunSpec},
    tensor::TensorMeta,
};

use partition::Candidate;
use protocol::worker_id::WorkerId;
use schedule::{HopModel, LinkModel, Model, Simulated, simulate};

/// How many stages a plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stages {
    /// As many as make the slowest stage fastest, in whatever order does.
    Auto,
    /// Exactly this many: the best ones, in the order of joining.
    Exactly(u32),
}

/// A worker as the planner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The worker.
    pub worker: WorkerId,
    /// Seconds of one layer on one micro-batch.
    pub layer: PassSeconds,
    /// Seconds of the embedding on one micro-batch.
    pub embedding: PassSeconds,
    /// Seconds of final norm, head and loss on one micro-batch, both ways.
    pub head_seconds: f64,
    /// Bytes it may use; 0: unknown, taken for enough.
    pub memory_bytes: u64,
    /// None: not measured, taken for instant.
    pub link: Option<LinkSpeed>,
}

impl Measured {
    /// Seconds these hops take on this worker, both ways.
    pub fn seconds(&self, hops: &[Hop]) -> f64 {
        hops.iter().map(|hop| self.hop_seconds(&hop.part).total()).sum()
    }

    fn hop_seconds(&self, part: &Part) -> PassSeconds {
        let layers = f64::from(part.end_layer - part.first_layer);
        let embedding = if part.embedding { 1.0 } else { 0.0 };
        // The head does both ways in one; counted as backward.
        let head = if part.head { self.head_seconds } else { 0.0 };
        PassSeconds {
            forward: layers * self.layer.forward + embedding * self.embedding.forward,
            backward: layers * self.layer.backward + embedding * self.embedding.backward + head,
        }
    }
}

/// What one worker holds in a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// The worker.
    pub worker: WorkerId,
    /// Its hops, ascending.
    pub hops: Vec<Hop>,
    /// Most micro-batches between forward and backward.
    pub window: u32,
    /// Bytes that its share takes.
    pub memory_bytes: u64,
}

/// A partition of the model over workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// From the embedding to the head.
    pub stages: Vec<Stage>,
    /// Holder of each hop.
    pub holders: Vec<WorkerId>,
    /// M.
    pub micro_batches: u32,
    /// What a step should come to, by the model of [`schedule`].
    pub predicted: Simulated,
}

/// Why there is no plan, in words that say what would help.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Fewer workers than stages.
    #[error("{have} of {want} workers are ready")]
    TooFew {
        /// Measured workers.
        have: u32,
        /// Workers that the plan needs.
        want: u32,
    },
    /// The model is larger than their memory.
    #[error(
        "the model does not fit into the memory of {have} {}: it needs {} more; {} or a narrower model would do",
        if *.have == 1 { "device" } else { "devices" }, size(*.missing), more(*.devices)
    )]
    DoesNotFit {
        /// Workers there are.
        have: u32,
        /// Bytes that are missing.
        missing: u64,
        /// Further devices like them that would do.
        devices: u64,
    },
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 1e9 => format!("{:.1} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.0} MB", b / 1e6),
        b => format!("{:.0} kB", (b / 1e3).max(1.0)),
    }
}

fn more(devices: u64) -> String {
    match devices {
        1 => "one more like them".into(),
        n => format!("{n} more like them"),
    }
}

impl Plan {
    /// Its workers, from the embedding to the head.
    pub fn workers(&self) -> Vec<WorkerId> {
        self.stages.iter().map(|s| s.worker).collect()
    }

    /// What this worker holds; None where it has no stage.
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

    /// What a step of this plan comes to if its workers are as measured now; None if one is not among them.
    pub fn replay(&self, run: &RunSpec, workers: &[Measured]) -> Option<Simulated> {
        let holders: Vec<&Measured> = self
            .stages
            .iter()
            .map(|stage| workers.iter().find(|w| w.worker == stage.worker))
            .collect::<Option<_>>()?;
        Some(simulate(&model_of(run, &self.stages, &holders, self.micro_batches)))
    }
}

/// Largest M that is looked at when it is to be chosen, in hops: beyond, the bubble is below 3 %.
const MOST_FILL: u32 = 32;
/// A larger M must shorten the bubble by this share of the best efficiency to be worth its larger batch.
const WORTH: f64 = 0.97;

/// The best plan for these workers. A `run` whose M is 0 has it chosen: the least that keeps the pipeline nearly as
/// busy as it can be.
///
/// # Errors
/// Why there is none: too few workers, or too little memory.
pub fn make(run: &RunSpec, stages: Stages, workers: &[Measured]) -> Result<Plan, PlanError> {
    let have = workers.len() as u32;
    let want = match stages {
        Stages::Auto => 1,
        Stages::Exactly(n) => n,
    };
    if have < want {
        return Err(PlanError::TooFew { have, want });
    }
    let (workers, counts) = match stages {
        Stages::Auto => (workers.to_vec(), divide(run, stages, workers)?),
        Stages::Exactly(n) => best_of(run, n, workers)?,
    };
    let workers = workers.as_slice();
    let laid = lay_out(&run.model, &counts);
    let holders: Vec<&Measured> =
        laid.iter().filter_map(|s| workers.iter().find(|w| w.worker == s.worker)).collect();
    let hops = laid.iter().map(|s| s.hops.len()).sum::<usize>() as u32;
    let candidates: Vec<u32> = match run.micro_batches {
        0 => (1..=MOST_FILL).map(|fill| fill.saturating_mul(hops).min(LOSSES as u32)).collect(),
        m => vec![m],
    };
    let played: Vec<(u32, Model, Simulated)> = candidates
        .into_iter()
        .map(|m| {
            let mut model = model_of(run, &laid, &holders, m);
            model.windows = within_memory(run, &laid, &holders, &model, schedule::windows(&model));
            let simulated = simulate(&model);
            (m, model, simulated)
        })
        .collect();
    let best = played.iter().map(|(_, _, s)| s.efficiency()).fold(0.0, f64::max);
    let chosen = played.into_iter().find(|(_, _, s)| s.efficiency() >= WORTH * best);
    let Some((micro_batches, model, predicted)) = chosen else {
        return Err(PlanError::TooFew { have, want }); // no workers, no plan
    };
    let mut stages = laid;
    for (stage, window) in stages.iter_mut().zip(model.windows) {
        stage.window = window;
        stage.memory_bytes = memory::stage(run, &stage.hops, window);
    }
    let mut holders: Vec<(u32, WorkerId)> =
        stages.iter().flat_map(|s| s.hops.iter().map(|hop| (hop.index, s.worker))).collect();
    holders.sort_unstable();
    Ok(Plan {
        stages,
        holders: holders.into_iter().map(|(_, worker)| worker).collect(),
        micro_batches,
        predicted,
    })
}

/// The workers of a plan, and the layers of each.
type Divided = (Vec<Measured>, Vec<(WorkerId, u32)>);

/// The fastest `n` of all workers, or where the model does not fit into them the `n` with the most memory; each with
/// its layers.
fn best_of(run: &RunSpec, n: u32, workers: &[Measured]) -> Result<Divided, PlanError> {
    let chosen = |key: &dyn Fn(&Measured) -> f64| {
        let mut order: Vec<usize> = (0..workers.len()).collect();
        order.sort_by(|a, b| key(&workers[*a]).total_cmp(&key(&workers[*b])).then(a.cmp(b)));
        order.truncate(n as usize);
        order.sort_unstable();
        let chosen: Vec<Measured> = order.into_iter().map(|index| workers[index].clone()).collect();
        divide(run, Stages::Exactly(n), &chosen).map(|counts| (chosen, counts))
    };
    let frame = frame_bytes(run);
    let seconds = |w: &Measured| {
        let link = w.link.map_or(0.0, |link| frame / link.up.min(link.down));
        let holds_nothing = w.memory_bytes > 0 && w.memory_bytes < memory::layer(run, 1);
        if holds_nothing { f64::INFINITY } else { w.layer.total().max(link) }
    };
    let memory = |w: &Measured| match w.memory_bytes {
        0 => f64::NEG_INFINITY,
        bytes => -(bytes as f64),
    };
    chosen(&seconds).or_else(|too_small| chosen(&memory).map_err(|_| too_small))
}

/// Layers of each stage, in the order of the stages.
fn divide(run: &RunSpec, stages: Stages, workers: &[Measured]) -> Result<Vec<(WorkerId, u32)>, PlanError> {
    let model = &run.model;
    // As many micro-batches are open as there are stages before the loss; who stands where is not known yet.
    let open = workers.len().min(model.layers as usize) as u32;
    let layer_bytes = memory::layer(run, open).max(1);
    let (embedding_bytes, head_bytes) = (memory::embedding(run), memory::head(run));
    // A tied table keeps the head with the embedding.
    let (first_bytes, last_bytes) =
        if model.tie_embeddings { (embedding_bytes + head_bytes, 0) } else { (embedding_bytes, head_bytes) };
    let room = |bytes: u64| bytes.div_ceil(layer_bytes).min(u64::from(u32::MAX)) as u32;
    let frame = frame_bytes(run);
    let candidates: Vec<Candidate> = workers
        .iter()
        .map(|w| {
            let limited = w.memory_bytes > 0;
            Candidate {
                seconds_per_layer: w.layer.total(),
                max_layers: match w.memory_bytes {
                    0 => model.layers,
                    bytes => (bytes / layer_bytes).min(u64::from(u32::MAX)) as u32,
                },
                first_room: if limited { room(first_bytes) } else { 0 },
                last_room: if limited { room(last_bytes) } else { 0 },
                link_seconds: w.link.map_or(0.0, |link| frame / link.up.min(link.down)),
            }
        })
        .collect();
    // Extras in units of a layer, by the mean worker: they belong to the shapes more than to the device.
    let mean = |part: fn(&Measured) -> f64| {
        workers.iter().map(|w| part(w) / w.layer.total()).sum::<f64>() / workers.len() as f64
    };
    let (embedding, head) = (mean(|w| w.embedding.total()), mean(|w| w.head_seconds));
    let (first_extra, last_extra) =
        if model.tie_embeddings { (embedding + head, 0.0) } else { (embedding, head) };
    let id = |worker: usize| workers[worker].worker;
    let found: Option<Vec<(WorkerId, u32)>> = match stages {
        Stages::Auto => partition::partition_unordered(model.layers, &candidates, first_extra, last_extra)
            .map(|found| found.order.iter().map(|w| id(*w)).zip(found.layers).collect()),
        Stages::Exactly(_) => partition::partition_all(model.layers, &candidates, first_extra, last_extra)
            .map(|found| found.layers.into_iter().enumerate().map(|(w, n)| (id(w), n)).collect()),
    };
    found.ok_or_else(|| {
        let needed = u64::from(model.layers) * layer_bytes + embedding_bytes + head_bytes;
        let there = workers.iter().fold(0, |sum: u64, w| sum.saturating_add(w.memory_bytes));
        let each = (there / workers.len().max(1) as u64).max(1);
        // Enough in all and still no fit: the parts are too large for the pieces.
        let missing = needed.saturating_sub(there).max(layer_bytes.min(needed));
        PlanError::DoesNotFit { have: workers.len() as u32, missing, devices: missing.div_ceil(each).max(1) }
    })
}

/// Bytes of an activation on the wire.
pub fn frame_bytes(run: &RunSpec) -> f64 {
    let shape = [run.sequences, run.context, run.model.width];
    TensorMeta::expected_bytes(run.wire, &shape).unwrap_or(0) as f64
}

/// A plan for [`schedule`], with windows as the stages have them.
fn model_of(run: &RunSpec, stages: &[Stage], holders: &[&Measured], micro_batches: u32) -> Model {
    let mut hops: Vec<(u32, HopModel)> = stages
        .iter()
        .zip(holders)
        .enumerate()
        .flat_map(|(worker, (stage, measured))| {
            stage.hops.iter().map(move |hop| {
                let PassSeconds { forward, backward } = measured.hop_seconds(&hop.part);
                (hop.index, HopModel { worker, forward, backward })
            })
        })
        .collect();
    hops.sort_by_key(|(index, _)| *index);
    let link = |measured: &&Measured| match measured.link {
        None => LinkModel::INSTANT,
        Some(link) => LinkModel { round_trip: link.round_trip_seconds, up: link.up, down: link.down },
    };
    Model {
        hops: hops.into_iter().map(|(_, hop)| hop).collect(),
        links: holders.iter().map(link).collect(),
        windows: stages.iter().map(|s| s.window).collect(),
        micro_batches,
        frame_bytes: frame_bytes(run),
    }
}

/// Windows no wider than memory allows, but never below what 1F1B needs.
fn within_memory(
    run: &RunSpec,
    stages: &[Stage],
    holders: &[&Measured],
    model: &Model,
    wanted: Vec<u32>,
) -> Vec<u32> {
    let hops = model.hops.len() as u32;
    stages
        .iter()
        .zip(holders)
        .zip(wanted)
        .map(|((stage, measured), wanted)| {
            let least = (hops - stage.hops.first().map_or(0, |hop| hop.index)).min(wanted);
            let fits = |window: u32| {
                measured.memory_bytes == 0 || memory::stage(run, &stage.hops, window) <= measured.memory_bytes
            };
            (least..=wanted).rev().find(|window| fits(*window)).unwrap_or(least)
        })
        .collect()
}

/// Give consecutive layers to the stages, and the hops their numbers.
fn lay_out(model: &ModelSpec, counts: &[(WorkerId, u32)]) -> Vec<Stage> {
    let last = counts.len() - 1;
    let returns = model.tie_embeddings && last > 0;
    let mut first_layer = 0;
    let mut stages = Vec::new();
    for (i, (worker, layers)) in counts.iter().enumerate() {
        let part = Part {
            embedding: i == 0,
            first_layer,
            end_layer: first_layer + layers,
            head: i == last && !returns,
        };
        first_layer += layers;
        let hops = vec![Hop { index: i as u32, part }];
        stages.push(Stage { worker: *worker, hops, window: 1, memory_bytes: 0 });
    }
    if returns {
        let part = Part { embedding: false, first_layer: model.layers, end_layer: model.layers, head: true };
        stages[0].hops.push(Hop { index: counts.len() as u32, part });
    }
    stages
}
