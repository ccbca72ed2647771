//! A replica's round done again, and how far what it sent lies from that: the ground for spot checks.
//!
//! Weights, windows and noise follow from published files and numbers. Only AdamW's moments stay on the
//! worker: a round that began with some is done again with all rounds before it, back to the one that began
//! without. With `rounds.moments = "fresh"` every round does.

use protocol::{
    delta::{DeltaEncoding, DeltaError, DeltaExpectation, decode},
    published::Published,
    spec::RunSpec,
};

use super::{BlockError, LocalRound, Replica, Task};
use crate::device::Device;

/// Largest distance of an honest delta from the one done again, over the length of the latter.
///
/// Processors and GPUs round differently, and AdamW turns a gradient's sign into a whole step where gradients
/// are near zero; the encodings add their own error.
pub fn tolerance(encoding: DeltaEncoding) -> f64 {
    match encoding {
        // A tab's processor was measured 5e-4 off a native one; a GPU may be further off.
        DeltaEncoding::F32 | DeltaEncoding::F16 => 0.02,
        // 5e-3 on the same processor: half a step of 1/127 of the largest of 64 numbers.
        DeltaEncoding::Int8 => 0.03,
        // Of what was sent.
        DeltaEncoding::TopK { .. } => 0.02,
    }
}

/// Why a piece of work cannot be done again.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecheckError {
    /// The chain of rounds begins in one whose work is nowhere written down.
    #[error(
        "its moments come from a round that did not count, so they are not known; with rounds.moments = \"fresh\" every \
         round begins without"
    )]
    Unknown,
    /// The chain of rounds begins in one whose files are gone.
    #[error(
        "its moments go back to round {since}, which is no longer kept; keep more with snapshots.keep, or set \
         rounds.moments = \"fresh\""
    )]
    Forgotten {
        /// The round that began without moments.
        since: u64,
    },
    /// Files or windows that do not fit the run.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A file that is not the delta of this work.
    #[error(transparent)]
    Delta(#[from] DeltaError),
}

/// One round of one worker, with all that it follows from.
#[derive(Debug, Clone)]
pub struct Step {
    /// Key of the noise.
    pub seed: u64,
    /// The block's and the table's base.
    pub files: [Vec<u8>; 2],
    /// Token ids [H, N, T + 1].
    pub windows: Vec<u32>,
    /// One for each of the H local steps.
    pub learning_rates: Vec<f64>,
}

/// Does the last of these rounds again on the processor, after those before it: the first began without
/// moments, and all are of one worker at one block. Gives the table's delta, then those of the block's
/// tensors, in the order of [`super::shapes::of_replica`].
///
/// # Errors
///
/// [`RecheckError::Unknown`] where there are no rounds; [`RecheckError::Block`] for files that do not fit.
pub async fn redo(run: &RunSpec, block: u32, chain: Vec<Step>) -> Result<Vec<Vec<f32>>, RecheckError> {
    let mut replica: Option<Replica> = None;
    let mut delta = Err(RecheckError::Unknown);
    for step in chain {
        let task = Task {
            seed: step.seed,
            learning_rates: step.learning_rates,
            windows: step.windows,
            shape: [run.sequences as usize, run.context as usize],
        };
        let replica = match &mut replica {
            Some(replica) => {
                replica.rebase(&step.files, false)?;
                replica
            }
            None => replica.insert(Replica::import(run, block, &step.files, &Device::Cpu)?),
        };
        let mut local = LocalRound::begin(task, replica).await?;
        while local.step(replica).await?.is_some() {}
        delta = Ok(local.delta(replica).await?);
    }
    delta
}

/// Distance of the delta that was sent from the one done again, over the length of the latter; of top-k, of the
/// numbers that were sent.
///
/// # Errors
///
/// [`RecheckError::Delta`] for a file that is not this work's delta.
pub fn distance(
    run: &RunSpec,
    block: u32,
    published: &Published,
    sent: &[u8],
    redone: &[Vec<f32>],
) -> Result<f64, RecheckError> {
    let no_such_block = BlockError::NoSuchBlock { block, count: published.blocks.len() as u32 };
    let base = published.blocks.get(block as usize).ok_or(no_such_block)?;
    let encoding = run.blocks.map_or(DeltaEncoding::F32, |blocks| blocks.delta);
    let lengths: Vec<u32> = redone.iter().map(|tensor| tensor.len() as u32).collect();
    let expectation = DeltaExpectation {
        round: published.round,
        block,
        base: base.hash,
        table: published.table.hash,
        encoding,
        lengths: &lengths,
        largest: f32::MAX,
    };
    let sent = decode(sent, &expectation)?;
    let sparse = matches!(encoding, DeltaEncoding::TopK { .. });
    let (mut apart, mut length) = (0.0, 0.0);
    for (sent, redone) in sent.tensors.iter().flatten().zip(redone.iter().flatten()) {
        if sparse && *sent == 0.0 {
            continue;
        }
        let (sent, redone) = (f64::from(*sent), f64::from(*redone));
        apart += (sent - redone) * (sent - redone);
        length += redone * redone;
    }
    Ok(apart.sqrt() / length.sqrt().max(f64::MIN_POSITIVE))
}
