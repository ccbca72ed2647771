//! A replica's round done again, and how far what it sent lies from that: the ground for spot checks.
//!
//! Weights, windows and noise follow from published files and numbers. Only AdamW's moments stay on the worker, so a
//! round can be done again if it began without any: the first at a block, or every one with `rounds.moments = "fresh"`.

use engine::{
    block::{BlockError, LocalRound, Replica, Task},
    device::Device,
};
use protocol::{
    delta::{DeltaEncoding, DeltaError, DeltaExpectation, decode},
    spec::RunSpec,
};

use super::{Published, manifest::Work, seeds};

/// Largest distance of an honest delta from the one done again, over the length of the latter.
///
/// Processors and GPUs round differently, and AdamW turns a gradient's sign into a whole step where gradients are near
/// zero; the encodings add their own error.
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
    #[error(
        "its moments are of round {since} or are not known: only a round that began without moments can be done again; \
         set rounds.moments = \"fresh\" to have all of them so"
    )]
    Moments { since: String },
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    Delta(#[from] DeltaError),
}

/// Does the work again on the processor: `files` are the block's and the table's base, `windows` [H, N, T + 1] its
/// windows, `learning_rates` those of its steps. Gives the table's delta, then the block's tensors.
///
/// # Errors
///
/// [`RecheckError::Moments`] where the round did not begin without moments.
pub fn redo<B: AsRef<[u8]>>(
    run: &RunSpec,
    run_seed: u64,
    round: u64,
    work: &Work,
    files: &[B],
    windows: Vec<u32>,
    learning_rates: Vec<f64>,
) -> Result<Vec<Vec<f32>>, RecheckError> {
    if work.moments_since != Some(round) {
        let since = work.moments_since.map_or("?".into(), |since| since.to_string());
        return Err(RecheckError::Moments { since });
    }
    let task = Task {
        seed: seeds::noise(run_seed, round, work.slot),
        learning_rates,
        windows,
        shape: [run.sequences as usize, run.context as usize],
    };
    let delta = futures::executor::block_on(async {
        let mut replica = Replica::import(run, work.block, files, &Device::Host)?;
        let mut local = LocalRound::begin(task, &replica).await?;
        while local.step(&mut replica).await?.is_some() {}
        local.delta(&replica).await
    })?;
    Ok(delta)
}

/// Distance of the delta that was sent from the one done again, over the length of the latter; of top-k, of the
/// numbers that were sent.
///
/// # Errors
///
/// [`RecheckError::Delta`] for a file that is not this work's delta.
pub fn distance(
    run: &RunSpec,
    work: &Work,
    published: &Published,
    sent: &[u8],
    redone: &[Vec<f32>],
) -> Result<f64, RecheckError> {
    let encoding = run.blocks.map_or(DeltaEncoding::F32, |blocks| blocks.delta);
    let lengths: Vec<u32> = redone.iter().map(|tensor| tensor.len() as u32).collect();
    let expectation = DeltaExpectation {
        round: published.round,
        block: work.block,
        base: published.blocks[work.block as usize].hash,
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
