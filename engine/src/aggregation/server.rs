//! The weights between rounds: every delta is checked before it touches them, and what passes is averaged.

use std::collections::{BTreeMap, HashMap};

use protocol::{
    blob::{BlobHash, BlobRef},
    delta::{DeltaEncoding, DeltaExpectation, DeltaRefusal, decode},
    published::Published,
    spec::RunSpec,
    worker_id::WorkerId,
};
use serde::{Deserialize, Serialize};

use super::{AggregateError, Aggregator, Outer, OuterStep, aggregate, median, norm};
use crate::{
    denoiser::{BlockError, Weights},
    parameters::ParameterError,
};

/// How deltas become weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    pub aggregator: Aggregator,
    pub outer: OuterStep,
    /// Largest size of one number of a delta.
    pub largest: f32,
    /// A delta may be this many times as long as the typical one of its block; None: any length.
    pub norm_limit: Option<f64>,
    /// Whether copies of another's numbers and deltas of nothing are turned away.
    pub suspicious: bool,
}

/// Why the weights could not be kept.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    #[error("the deltas could not be averaged: {0}")]
    Aggregate(#[from] AggregateError),
    #[error("the state of the outer step is damaged: {0}")]
    Outer(String),
    #[error(
        "the average of the deltas is not finite; lower training.learning_rate or rounds.outer_learning_rate"
    )]
    NotFinite,
}

/// Deltas that have passed, of one worker.
struct Passed {
    block: u32,
    /// Numbers for the table, then for the block, flat.
    table: Vec<f32>,
    own: Vec<f32>,
    /// Length of all of it.
    norm: f64,
}

/// What goes on from round to round beside the weights.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    momentum: Option<Vec<f32>>,
    /// The last aggregate, where centred clipping starts.
    last: Option<Vec<f32>>,
}

/// The weights with their outer step, and the deltas of the round under way.
pub struct Server {
    rules: Rules,
    weights: Weights,
    /// Of the table, then of each block.
    memories: Vec<Memory>,
    passed: BTreeMap<WorkerId, Passed>,
    /// Bodies of all deltas that passed, and whose they were.
    bodies: HashMap<BlobHash, WorkerId>,
    /// Median length of each block's deltas in its last round.
    typical: Vec<Option<f64>>,
    run: RunSpec,
}

/// Files to publish.
pub struct Files {
    pub blocks: Vec<Vec<u8>>,
    pub table: Vec<u8>,
    pub outer: Option<Vec<u8>>,
}

impl Files {
    pub fn published(&self, round: u64) -> Published {
        Published {
            round,
            blocks: self.blocks.iter().map(|file| BlobRef::of(file)).collect(),
            table: BlobRef::of(&self.table),
            outer: self.outer.as_ref().map(|file| BlobRef::of(file)),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.blocks.iter().chain([&self.table]).chain(&self.outer)
    }
}

/// What a round came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Averaged {
    /// Whether each block has new weights.
    pub updated: Vec<bool>,
    /// Deltas that had passed alone but not beside the others.
    pub dropped: Vec<(WorkerId, DeltaRefusal)>,
}

impl Server {
    /// # Errors
    ///
    /// [`ServerError::Block`] for a run that is not in block mode.
    pub fn draw(run: &RunSpec, seed: u64, rules: Rules) -> Result<Server, ServerError> {
        Ok(Server::new(run, Weights::draw(run, seed)?, rules, None))
    }

    /// From published files: blocks and table, and the outer state if there was one.
    ///
    /// # Errors
    ///
    /// [`ServerError`] for files that are damaged or of another run.
    pub fn resume<B: AsRef<[u8]>>(
        run: &RunSpec,
        files: &[B],
        outer: Option<&[u8]>,
        rules: Rules,
    ) -> Result<Server, ServerError> {
        let memories = match outer {
            Some(bytes) => {
                Some(postcard::from_bytes(bytes).map_err(|error| ServerError::Outer(error.to_string()))?)
            }
            None => None,
        };
        Ok(Server::new(run, Weights::import(run, files)?, rules, memories))
    }

    fn new(run: &RunSpec, weights: Weights, rules: Rules, memories: Option<Vec<Memory>>) -> Server {
        let blocks = weights.blocks.len();
        let memories = memories
            .filter(|memories| memories.len() == blocks + 1)
            .unwrap_or_else(|| vec![Memory::default(); blocks + 1]);
        Server {
            rules,
            weights,
            memories,
            passed: BTreeMap::new(),
            bodies: HashMap::new(),
            typical: vec![None; blocks],
            run: run.clone(),
        }
    }

    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    pub fn run(&self) -> &RunSpec {
        &self.run
    }

    /// The files of the weights as they are.
    ///
    /// # Errors
    ///
    /// [`ServerError::Parameters`] when they cannot be written.
    pub fn files(&self) -> Result<Files, ServerError> {
        let blocks = (0..self.weights.blocks.len() as u32)
            .map(|block| self.weights.block_file(block))
            .collect::<Result<_, _>>()?;
        let nothing = self.memories.iter().all(|memory| *memory == Memory::default());
        let outer = match nothing {
            true => None,
            false => Some(
                postcard::to_stdvec(&self.memories).map_err(|error| ServerError::Outer(error.to_string()))?,
            ),
        };
        Ok(Files { blocks, table: self.weights.table_file()?, outer })
    }

    /// Looks at a worker's delta of the round that starts from `published`; keeps it if it passes, and gives its
    /// length. The weights are not touched.
    ///
    /// # Errors
    ///
    /// [`DeltaRefusal`]; nothing is kept then.
    pub fn check(
        &mut self,
        worker: WorkerId,
        block: u32,
        published: &Published,
        bytes: &[u8],
    ) -> Result<f64, DeltaRefusal> {
        let round = published.round;
        let Some(base) = published.blocks.get(block as usize) else {
            return Err(DeltaRefusal::NotAssigned { round });
        };
        if self.passed.contains_key(&worker) {
            return Err(DeltaRefusal::Twice { round });
        }
        let encoding = self.run.blocks.map_or(DeltaEncoding::F32, |blocks| blocks.delta);
        let expectation = DeltaExpectation {
            round,
            block,
            base: base.hash,
            table: published.table.hash,
            encoding,
            lengths: &self.weights.lengths(block),
            largest: self.rules.largest,
        };
        let delta = decode(bytes, &expectation)?;
        if self.rules.suspicious
            && let Some(&of) = self.bodies.get(&delta.body)
        {
            return Err(DeltaRefusal::Copy { of });
        }
        let mut tensors = delta.tensors.into_iter();
        let table = tensors.next().unwrap_or_default();
        let own: Vec<f32> = tensors.flatten().collect();
        let length = norm(&table).hypot(norm(&own));
        if self.rules.suspicious && length == 0.0 {
            return Err(DeltaRefusal::Empty);
        }
        if let Some(typical) = self.typical[block as usize] {
            self.check_norm(length, typical)?;
        }
        self.bodies.insert(delta.body, worker);
        self.passed.insert(worker, Passed { block, table, own, norm: length });
        Ok(length)
    }

    fn check_norm(&self, norm: f64, typical: f64) -> Result<(), DeltaRefusal> {
        match self.rules.norm_limit {
            Some(limit) if norm > limit * typical => {
                Err(DeltaRefusal::Norm { norm, typical, ratio: norm / typical, limit })
            }
            _ => Ok(()),
        }
    }

    /// Averages what has passed of `accepted` into the weights, and forgets the rest: a block's delta with those of
    /// its other replicas, the table's with everybody's. A block without any stays as it is.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotFinite`]; the weights are as before then.
    pub fn average(&mut self, accepted: &[WorkerId]) -> Result<Averaged, ServerError> {
        let mut passed = std::mem::take(&mut self.passed);
        passed.retain(|worker, _| accepted.contains(worker));
        let blocks = self.weights.blocks.len();
        let mut averaged = Averaged { updated: vec![false; blocks], dropped: Vec::new() };
        for block in 0..blocks as u32 {
            // Beside at least two others a stranger is known even in the first round.
            let norms: Vec<f64> = passed.values().filter(|p| p.block == block).map(|p| p.norm).collect();
            if norms.len() < 3 {
                continue;
            }
            let typical = median(&norms);
            passed.retain(|worker, p| match (p.block == block).then(|| self.check_norm(p.norm, typical)) {
                Some(Err(refusal)) => {
                    averaged.dropped.push((*worker, refusal));
                    false
                }
                _ => true,
            });
        }

        // On copies, so that a failure leaves everything as it was.
        let (mut weights, mut memories) = (self.weights.clone(), self.memories.clone());
        let mut typical = self.typical.clone();
        let all: Vec<&[f32]> = passed.values().map(|p| p.table.as_slice()).collect();
        if !all.is_empty() {
            self.step(&mut weights.table, &mut memories[0], &all)?;
        }
        for block in 0..blocks {
            let of_block: Vec<&Passed> = passed.values().filter(|p| p.block as usize == block).collect();
            if of_block.is_empty() {
                continue;
            }
            let deltas: Vec<&[f32]> = of_block.iter().map(|p| p.own.as_slice()).collect();
            let mut flat = weights.blocks[block].concat();
            self.step(&mut flat, &mut memories[block + 1], &deltas)?;
            let mut rest = flat.as_slice();
            for tensor in &mut weights.blocks[block] {
                let (values, after) = rest.split_at(tensor.len());
                tensor.copy_from_slice(values);
                rest = after;
            }
            averaged.updated[block] = true;
            typical[block] = Some(median(&of_block.iter().map(|p| p.norm).collect::<Vec<_>>()));
        }
        self.weights = weights;
        self.memories = memories;
        self.typical = typical;
        Ok(averaged)
    }

    fn step(&self, theta: &mut [f32], memory: &mut Memory, deltas: &[&[f32]]) -> Result<(), ServerError> {
        let mean = aggregate(&self.rules.aggregator, deltas, memory.last.as_deref())?;
        let mut outer = Outer::resume(self.rules.outer, memory.momentum.take());
        outer.step(theta, &mean)?;
        memory.momentum = outer.momentum().map(<[f32]>::to_vec);
        if matches!(self.rules.aggregator, Aggregator::CentredClip { .. }) {
            memory.last = Some(mean);
        }
        if theta.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(ServerError::NotFinite) }
    }
}
