//! How good a composed model is on held-out text, with its controls: see [`Scores`].

use protocol::{evaluation::Scores, spec::RunSpec};

use super::{
    BlockError,
    replica::Noise,
    round::halves,
    sweep::{Composed, softmax},
};
use crate::{device::Device, gpt2::check_tokens};

/// Key of what is drawn for `alone`, apart from the sweeps' own draws.
const ALONE: u64 = 1 << 32;

/// The scores of one held-out batch of `windows` [N, T + 1], computed on the processor; `files` together hold
/// all blocks and the table, `seed` is the key of the noise, `draws` the number of sweeps of
/// [`Scores::many_draws`].
///
/// # Errors
///
/// [`BlockError`] for files that are damaged or of another run, for windows that do not fit, and for logits
/// that are not finite.
pub async fn measure<B: AsRef<[u8]>>(
    run: &RunSpec,
    files: &[B],
    windows: &[u32],
    seed: u64,
    draws: u32,
) -> Result<Scores, BlockError> {
    let shape = [run.sequences as usize, run.context as usize];
    let model = Composed::import(run, files, &Device::Cpu).await?;
    evaluate(&model, windows, shape, seed, draws, async || {}).await
}

/// Measures one batch of windows [N, T + 1]. Noise comes from `seed` and counters: the same on every device,
/// as far as its floats are. `yield_now` is awaited between passes: in a tab it yields to the event loop.
///
/// # Errors
///
/// [`BlockError::Stage`] for input that does not fit, and for logits that are not finite.
pub async fn evaluate(
    model: &Composed,
    windows: &[u32],
    shape: [usize; 2],
    seed: u64,
    draws: u32,
    yield_now: impl AsyncFn(),
) -> Result<Scores, BlockError> {
    let [sequences, tokens] = shape;
    let vocabulary = model.vocabulary();
    check_tokens("an evaluation's windows", windows, sequences * (tokens + 1), vocabulary as u32)?;
    let (x, y) = halves(windows, tokens);
    let sigmas = model.schedule().one_sweep();
    let highest = sigmas[0];

    let mut chain = Vec::new();
    let mut shares = vec![0.0f64; y.len()];
    let draws = draws.max(1);
    for draw in 0..draws {
        yield_now().await;
        let start = model.start(seed, u64::from(draw), highest, shape);
        let logits = model.sweep(&x, start, shape).await?;
        if draw == 0 {
            chain = logits.iter().map(|logits| cross_entropy(logits, &y, vocabulary)).collect();
        }
        if let Some(last) = logits.last() {
            add_shares(&mut shares, last, &y, vocabulary);
        }
    }
    let many_draws =
        -shares.iter().map(|share| libm::log((share / f64::from(draws)).max(1e-300))).sum::<f64>()
            / y.len() as f64;

    let zeros = vec![0.0; y.len() * model.width()];
    let from_zero = model.sweep(&x, zeros, shape).await?;
    let from_zero = from_zero.last().map_or(f64::NAN, |last| cross_entropy(last, &y, vocabulary));

    let (mut alone, mut local, mut scrambled) = (Vec::new(), Vec::new(), Vec::new());
    let other = scramble(&x, tokens);
    for (replica, &sigma) in model.blocks().iter().zip(&sigmas) {
        yield_now().await;
        let block = u64::from(replica.block());
        let start = model.start(seed, ALONE + block, sigma, shape);
        let logits = replica.denoise(&x, &start, &vec![sigma as f32; sequences], shape).await?;
        alone.push(cross_entropy(&logits, &y, vocabulary));
        let Noise { sigma, eps } = replica.noise(seed, block, shape);
        let z = model.noised(&y, &sigma, &eps, shape)?;
        let logits = replica.denoise(&x, &z, &sigma, shape).await?;
        local.push(cross_entropy(&logits, &y, vocabulary));
        let logits = replica.denoise(&other, &z, &sigma, shape).await?;
        scrambled.push(cross_entropy(&logits, &y, vocabulary));
    }
    let one_draw = chain.last().copied().unwrap_or(f64::NAN);
    Ok(Scores { one_draw, draws, many_draws, from_zero, chain, alone, local, scrambled })
}

/// The context of the next sequence; of a single one, backwards.
fn scramble(x: &[u32], tokens: usize) -> Vec<u32> {
    let mut other = x.to_vec();
    if x.len() > tokens {
        other.rotate_left(tokens);
    } else {
        other.reverse();
    }
    other
}

/// Mean cross-entropy in nats of logits [R, V].
pub fn cross_entropy(logits: &[f32], targets: &[u32], vocabulary: usize) -> f64 {
    let row = |(row, &target): (&[f32], &u32)| {
        let highest = row.iter().fold(f32::NEG_INFINITY, |highest, x| highest.max(*x));
        let total: f64 = row.iter().map(|x| f64::from(libm::expf(x - highest))).sum();
        libm::log(total) - f64::from(row[target as usize] - highest)
    };
    logits.chunks_exact(vocabulary).zip(targets).map(row).sum::<f64>() / targets.len() as f64
}

/// Adds each target's probability.
fn add_shares(shares: &mut [f64], logits: &[f32], targets: &[u32], vocabulary: usize) {
    for ((share, row), &target) in shares.iter_mut().zip(logits.chunks_exact(vocabulary)).zip(targets) {
        let mut row = row.to_vec();
        softmax(&mut row);
        *share += f64::from(row[target as usize]);
    }
}
