//! The aggregation server: keeps the weights of block mode between rounds, checks every delta before it
//! touches them, and averages those that pass.
//!
//! A delta must be of this round, block and base, of the run's encoding and shapes, finite and of no absurd
//! size ([`protocol::delta::decode`]); not a copy of another's numbers, not all zeros, and not longer than a
//! multiple of the typical length. Lengths are compared with those of the block's last round as deltas
//! arrive, and once more with those of the same round when it ends.

use std::collections::BTreeMap;

use protocol::{
    blob::BlobRef,
    delta::{DeltaEncoding, DeltaExpectation, DeltaRefusal, decode},
    published::Published,
    spec::RunSpec,
    worker_id::WorkerId,
};
use serde::{Deserialize, Serialize};

use super::{AggregateError, Aggregator, Outer, OuterStep, aggregate, bodies::Bodies, median, norm};
use crate::{
    denoiser::{BlockError, Weights},
    parameters::ParameterError,
};

/// How deltas become weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// How the deltas of a round become one.
    pub aggregator: Aggregator,
    /// How that one moves the weights.
    pub outer: OuterStep,
    /// Largest size of one number of a delta.
    pub largest: f32,
    /// A delta may be this many times as long as the typical one of its block; None: any length.
    pub norm_limit: Option<f64>,
    /// Whether copies of another's numbers and deltas of nothing are turned away.
    pub suspicious: bool,
}

/// Why the weights could not be made, published or moved.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ServerError {
    /// A run that is not in block mode, or files of another one.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// Files that cannot be written.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// Deltas of different lengths.
    #[error("the deltas could not be averaged: {0}")]
    Aggregate(#[from] AggregateError),
    /// The file beside the weights.
    #[error("the state of the outer step is damaged: {0}")]
    Outer(String),
    /// Weights of NaN or infinity after a round.
    #[error(
        "the average of the deltas is not finite; lower training.learning_rate or rounds.outer_learning_rate"
    )]
    NotFinite,
}

/// One worker's delta that has passed the checks.
struct CheckedDelta {
    block: u32,
    /// Numbers for the table, then for the block, flat.
    table: Vec<f32>,
    own: Vec<f32>,
    /// Length of all of it.
    norm: f64,
}

/// State of the outer step of the table or of one block, kept from round to round beside the weights.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct OuterState {
    /// As [`Outer::momentum`].
    momentum: Option<Vec<f32>>,
    /// The last aggregate, where centred clipping starts.
    last: Option<Vec<f32>>,
}

/// Deltas by whose numbers a copy is known: many rounds of a large run, in a few megabytes. Sent again later than that,
/// numbers are of weights long past, and are refused for their length or averaged away.
const MOST_BODIES: usize = 1 << 16;

/// The weights with their outer step, and the deltas of the round in progress.
pub struct Server {
    rules: Rules,
    weights: Weights,
    /// Of the table, then of each block.
    outer_states: Vec<OuterState>,
    checked: BTreeMap<WorkerId, CheckedDelta>,
    /// The numbers of the newest deltas that passed.
    bodies: Bodies,
    /// Median length of each block's deltas in its last round.
    typical: Vec<Option<f64>>,
    run: RunSpec,
}

/// Files to publish.
pub struct Files {
    /// Each block's own parameters, as safetensors.
    pub blocks: Vec<Vec<u8>>,
    /// The shared table, as safetensors.
    pub table: Vec<u8>,
    /// State of the outer step; None where it needs none.
    pub outer: Option<Vec<u8>>,
}

impl Files {
    /// How the weights of these files are announced, after so many rounds.
    pub fn published(&self, round: u64) -> Published {
        Published {
            round,
            blocks: self.blocks.iter().map(|file| BlobRef::of(file)).collect(),
            table: BlobRef::of(&self.table),
            outer: self.outer.as_ref().map(|file| BlobRef::of(file)),
        }
    }

    /// Every file: the blocks', the table's, then the outer state's.
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
    /// With the initial weights of this seed.
    ///
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
        let outer_states: Option<Vec<OuterState>> = match outer {
            Some(bytes) => {
                Some(postcard::from_bytes(bytes).map_err(|error| ServerError::Outer(error.to_string()))?)
            }
            None => None,
        };
        let weights = Weights::import(run, files)?;
        let expected = weights.blocks.len() + 1;
        if let Some(found) = outer_states.as_ref().map(Vec::len).filter(|found| *found != expected) {
            return Err(ServerError::Outer(format!("it is of {found} tensors, not of {expected}")));
        }
        Ok(Server::new(run, weights, rules, outer_states))
    }

    fn new(run: &RunSpec, weights: Weights, rules: Rules, outer_states: Option<Vec<OuterState>>) -> Server {
        let blocks = weights.blocks.len();
        let outer_states = outer_states.unwrap_or_else(|| vec![OuterState::default(); blocks + 1]);
        Server {
            rules,
            weights,
            outer_states,
            checked: BTreeMap::new(),
            bodies: Bodies::new(MOST_BODIES),
            typical: vec![None; blocks],
            run: run.clone(),
        }
    }

    /// The weights as they are.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// What is trained.
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
        let nothing = self.outer_states.iter().all(|state| *state == OuterState::default());
        let outer = match nothing {
            true => None,
            false => Some(
                postcard::to_stdvec(&self.outer_states)
                    .map_err(|error| ServerError::Outer(error.to_string()))?,
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
        let (Some(base), Some(&typical)) =
            (published.blocks.get(block as usize), self.typical.get(block as usize))
        else {
            return Err(DeltaRefusal::NotAssigned { round });
        };
        if self.checked.contains_key(&worker) {
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
            && let Some(of) = self.bodies.sender(delta.body)
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
        if let Some(typical) = typical {
            self.check_norm(length, typical)?;
        }
        self.bodies.insert(delta.body, worker);
        self.checked.insert(worker, CheckedDelta { block, table, own, norm: length });
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
        let mut deltas = std::mem::take(&mut self.checked);
        deltas.retain(|worker, _| accepted.contains(worker));
        let blocks = self.weights.blocks.len();
        let mut averaged = Averaged { updated: vec![false; blocks], dropped: Vec::new() };
        for block in 0..blocks as u32 {
            // Beside at least two others an outlier shows even in the first round, which has no typical length yet.
            let norms: Vec<f64> =
                deltas.values().filter(|delta| delta.block == block).map(|delta| delta.norm).collect();
            if norms.len() < 3 {
                continue;
            }
            let typical = median(&norms);
            deltas.retain(|worker, delta| {
                match (delta.block == block).then(|| self.check_norm(delta.norm, typical)) {
                    Some(Err(refusal)) => {
                        averaged.dropped.push((*worker, refusal));
                        false
                    }
                    _ => true,
                }
            });
        }

        // On copies, so that a failure leaves everything as it was.
        let (mut weights, mut outer_states) = (self.weights.clone(), self.outer_states.clone());
        let mut typical = self.typical.clone();
        let all: Vec<&[f32]> = deltas.values().map(|delta| delta.table.as_slice()).collect();
        if !all.is_empty() {
            self.step(&mut weights.table, &mut outer_states[0], &all)?;
        }
        for block in 0..blocks {
            let of_block: Vec<&CheckedDelta> =
                deltas.values().filter(|delta| delta.block as usize == block).collect();
            if of_block.is_empty() {
                continue;
            }
            let own: Vec<&[f32]> = of_block.iter().map(|delta| delta.own.as_slice()).collect();
            let mut flat = weights.blocks[block].concat();
            self.step(&mut flat, &mut outer_states[block + 1], &own)?;
            let mut rest = flat.as_slice();
            for tensor in &mut weights.blocks[block] {
                let (values, after) = rest.split_at(tensor.len());
                tensor.copy_from_slice(values);
                rest = after;
            }
            averaged.updated[block] = true;
            typical[block] = Some(median(&of_block.iter().map(|delta| delta.norm).collect::<Vec<_>>()));
        }
        self.weights = weights;
        self.outer_states = outer_states;
        self.typical = typical;
        Ok(averaged)
    }

    fn step(&self, theta: &mut [f32], state: &mut OuterState, deltas: &[&[f32]]) -> Result<(), ServerError> {
        let mean = aggregate(&self.rules.aggregator, deltas, state.last.as_deref())?;
        let mut outer = Outer::resume(self.rules.outer, state.momentum.take());
        outer.step(theta, &mean)?;
        state.momentum = outer.momentum().map(<[f32]>::to_vec);
        if matches!(self.rules.aggregator, Aggregator::CentredClip { .. }) {
            state.last = Some(mean);
        }
        if theta.iter().all(|value| value.is_finite()) { Ok(()) } else { Err(ServerError::NotFinite) }
    }
}
