//! Block mode in a session: a block's replica, the round it is in, and evaluations.

use std::{collections::HashMap, rc::Rc};

use protocol::{
    blob::{BlobHash, BlobRef},
    delta::{self, DeltaEncoding, DeltaError, DeltaHeader},
    evaluation::Scores,
    message::{Evaluate, Judged, Round, Timings},
    spec::RunSpec,
    tensor::{CodecError, TensorMeta, decode_tokens},
};

use crate::{
    Device,
    block::{BlockError, LocalRound, Replica, StepScore, Task, evaluate::evaluate, sweep::Composed},
};

/// Why a worker cannot go on with its round.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplicaError {
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error("the windows could not be read: {0}")]
    Codec(#[from] CodecError),
    #[error("the windows have shape {found:?} where {wanted:?} is expected")]
    Shape { found: Vec<u32>, wanted: Vec<u32> },
    #[error("what was learned could not be written: {0}")]
    Delta(#[from] DeltaError),
}

/// A replica between rounds. Outlives connections.
struct Held {
    replica: Replica,
    /// What top-k has not sent yet.
    residuals: Vec<Vec<f32>>,
    /// The same before the last delta, until that is known to count.
    before: Option<(u64, Vec<Vec<f32>>)>,
}

/// What a worker keeps from round to round: its replica with AdamW's moments, and the files it has fetched.
#[derive(Default)]
pub struct Bench {
    held: Option<Held>,
    files: HashMap<BlobHash, Rc<Vec<u8>>>,
}

impl Bench {
    /// A file fetched before.
    pub fn file(&self, blob: BlobRef) -> Option<Rc<Vec<u8>>> {
        self.files.get(&blob.hash).cloned()
    }

    /// Keep these files, and no others.
    pub fn keep(&mut self, files: &[(BlobRef, Rc<Vec<u8>>)]) {
        self.files = files.iter().map(|(blob, bytes)| (blob.hash, bytes.clone())).collect();
    }

    /// What became of the delta of a round: what a refused one took from the residuals goes back there.
    pub fn judged(&mut self, judged: &Judged) {
        let Some(held) = &mut self.held else { return };
        if let Some((_, before)) = held.before.take_if(|(round, _)| *round == judged.round)
            && judged.refused.is_some()
        {
            held.residuals = before;
        }
    }

    /// Forget the replica, whose state can no longer be relied on.
    pub fn clear(&mut self) {
        self.held = None;
    }
}

/// A round under way.
pub struct RoundWork {
    pub round: Round,
    local: LocalRound,
    pub timings: Timings,
    encoding: DeltaEncoding,
}

impl RoundWork {
    /// Load the weights of the round and begin. `files` are the block's and the table's.
    pub async fn begin(
        run: &RunSpec,
        round: Round,
        windows: Vec<u32>,
        files: &[Rc<Vec<u8>>],
        device: &Device,
        bench: &mut Bench,
    ) -> Result<RoundWork, ReplicaError> {
        let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
        match bench.held.as_mut().filter(|held| held.replica.block() == round.block) {
            Some(held) => {
                held.replica.rebase(&files, round.fresh)?;
                // An accepted delta is judged before the next round opens: this one was not taken, or not sent.
                if let Some((_, before)) = held.before.take() {
                    held.residuals = before;
                }
                if round.fresh {
                    held.residuals.clear();
                }
            }
            None => {
                let replica = Replica::import(run, round.block, &files, device)?;
                bench.held = Some(Held { replica, residuals: Vec::new(), before: None });
            }
        }
        let Some(held) = &bench.held else { return Err(BlockError::NotBlockMode.into()) };
        let task = Task {
            seed: round.seed,
            learning_rates: round.learning_rates.clone(),
            windows,
            shape: [run.sequences as usize, run.context as usize],
        };
        let local = LocalRound::begin(task, &held.replica).await?;
        let encoding = run.blocks.map_or(DeltaEncoding::F32, |blocks| blocks.delta);
        Ok(RoundWork { round, local, timings: Timings::default(), encoding })
    }

    pub fn steps(&self) -> u32 {
        self.local.steps() as u32
    }

    pub fn steps_done(&self) -> u32 {
        self.local.steps_done() as u32
    }

    pub fn mean_score(&self) -> StepScore {
        self.local.mean_score()
    }

    /// The next local step; None once all are done.
    pub async fn step(&mut self, bench: &mut Bench) -> Result<Option<StepScore>, ReplicaError> {
        let Some(held) = &mut bench.held else { return Err(BlockError::NotBlockMode.into()) };
        Ok(self.local.step(&mut held.replica).await?)
    }

    /// What was learned, as a file.
    pub async fn delta(&self, bench: &mut Bench) -> Result<Vec<u8>, ReplicaError> {
        let Some(held) = &mut bench.held else { return Err(BlockError::NotBlockMode.into()) };
        let tensors = self.local.delta(&held.replica).await?;
        let header = DeltaHeader {
            round: self.round.round,
            block: self.round.block,
            base: self.round.base.hash,
            table: self.round.table.hash,
            encoding: self.encoding,
            lengths: tensors.iter().map(|tensor| tensor.len() as u32).collect(),
        };
        if let DeltaEncoding::TopK { .. } = self.encoding {
            held.before = Some((self.round.round, held.residuals.clone()));
            return Ok(delta::encode(&header, &tensors, Some(&mut held.residuals))?);
        }
        Ok(delta::encode(&header, &tensors, None)?)
    }
}

/// Token ids of windows, which must have this shape.
pub fn windows(tensor: &TensorMeta, payload: &[u8], wanted: &[u32]) -> Result<Vec<u32>, ReplicaError> {
    if tensor.shape != wanted {
        return Err(ReplicaError::Shape { found: tensor.shape.clone(), wanted: wanted.to_vec() });
    }
    Ok(decode_tokens(tensor, payload)?)
}

/// Measure the whole model on one batch. `files` are all blocks' and the table's.
pub async fn measure(
    run: &RunSpec,
    task: &Evaluate,
    windows: &[u32],
    files: &[Rc<Vec<u8>>],
    device: &Device,
    breathe: impl AsyncFn(),
) -> Result<Scores, ReplicaError> {
    let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
    let model = Composed::import(run, &files, device).await?;
    let shape = [run.sequences as usize, run.context as usize];
    Ok(evaluate(&model, windows, shape, task.seed, task.draws, breathe).await?)
}
