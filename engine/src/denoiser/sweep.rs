//! Inference: one sweep from noise through all blocks.
//!
//! At step t of T = B the block that owns sigma_t gives logits; z moves towards the codes they point at, by
//! an Euler step of the probability-flow equation, and after the last block's logits there is no further
//! step:
//!
//! ```text
//! z0 = sqrt(1 + sigma_max^2) N(0, I)
//! for t < T - 1:  logits = block t of z at s_t;  target = softmax(logits) codes
//!                 z <- z + (s_{t+1} - s_t) (z - target) / s_t
//! the last block, at sigma_min, gives the answer
//! ```

use protocol::spec::RunSpec;

use super::{BlockError, Replica, noise::NoiseSchedule, pass::cpu::Codes, shapes::index};
use crate::{
    cpu::matmul::{Into, Matrix, product},
    device::Device,
    gpt2::{StageError, check_length, check_tokens},
    init::{normal, random, stream},
    parameters::Quantity,
    sizes::Sizes,
};

/// All blocks of a model, ready to be asked.
pub struct Composed {
    /// By block.
    blocks: Vec<Replica>,
    codes: Codes,
}

impl Composed {
    /// `blocks` are all of a model's, in order, with one table.
    ///
    /// # Errors
    ///
    /// [`BlockError::NoSuchBlock`] where one is missing or out of order.
    pub async fn new(blocks: Vec<Replica>) -> Result<Composed, BlockError> {
        let count = blocks.first().map_or(0, |first| first.schedule().boundaries().len() as u32 - 1);
        let in_order = blocks.iter().zip(0..).all(|(replica, block)| replica.block() == block);
        let Some(first) = blocks.first().filter(|_| in_order && blocks.len() as u32 == count) else {
            return Err(BlockError::NoSuchBlock { block: blocks.len() as u32, count });
        };
        let table = first.parameters().read(index::TABLE, Quantity::Value).await?;
        let codes = Codes::new(&table, first.model().width as usize);
        Ok(Composed { blocks, codes })
    }

    /// All blocks from safetensors files that together hold them and the table.
    ///
    /// # Errors
    ///
    /// As for [`Replica::import`].
    pub async fn import<B: AsRef<[u8]>>(
        run: &RunSpec,
        files: &[B],
        device: &Device,
    ) -> Result<Composed, BlockError> {
        let count = run.blocks.as_ref().ok_or(BlockError::NotBlockMode)?.count;
        let blocks = (0..count).map(|block| Replica::import(run, block, files, device));
        Composed::new(blocks.collect::<Result<_, _>>()?).await
    }

    /// The ranges of sigma of all blocks.
    pub fn schedule(&self) -> &NoiseSchedule {
        self.blocks[0].schedule()
    }

    /// All blocks, in order.
    pub fn blocks(&self) -> &[Replica] {
        &self.blocks
    }

    /// d.
    pub fn width(&self) -> usize {
        self.blocks[0].model().width as usize
    }

    /// V.
    pub fn vocabulary(&self) -> usize {
        self.blocks[0].model().vocabulary as usize
    }

    /// `codes[targets] + sigma * eps`, [N, T, d]: what a block sees in training. One sigma a sequence.
    ///
    /// # Errors
    ///
    /// [`BlockError::Stage`] for input that does not fit.
    pub fn noised(
        &self,
        targets: &[u32],
        sigma: &[f32],
        eps: &[f32],
        shape: [usize; 2],
    ) -> Result<Vec<f32>, BlockError> {
        let [sequences, tokens] = shape;
        let sizes = Sizes { sequences, tokens, width: self.width(), heads: 1 };
        check_tokens("the targets", targets, sizes.rows(), self.blocks[0].model().vocabulary)?;
        check_length("the sigmas", sigma.len(), sequences)?;
        check_length("the noise", eps.len(), sizes.rows() * sizes.width)?;
        Ok(self.codes.noised(targets, sigma, eps, sizes))
    }

    /// The start of a sweep at `sigma`: sqrt(1 + sigma^2) N(0, I), [N, T, d], from counters alone.
    pub fn start(&self, seed: u64, draw: u64, sigma: f64, shape: [usize; 2]) -> Vec<f32> {
        let spread = libm::sqrt(1.0 + sigma * sigma);
        normal(random(stream(seed, "start"), draw), spread, shape[0] * shape[1] * self.width())
    }

    /// Logits [N, T, V] after each step of the one sweep, from z0 [N, T, d] with the context x [N, T].
    ///
    /// The targets do not enter: what the sweep says it cannot have seen.
    ///
    /// # Errors
    ///
    /// [`BlockError::Stage`] for input that does not fit.
    pub async fn sweep(
        &self,
        x: &[u32],
        z0: Vec<f32>,
        shape: [usize; 2],
    ) -> Result<Vec<Vec<f32>>, BlockError> {
        let mut states = Vec::new();
        self.states(x, z0, shape, &mut states).await
    }

    /// The same, with z [N, T, d] before each step added to `states`.
    ///
    /// # Errors
    ///
    /// As for [`Composed::sweep`].
    pub async fn states(
        &self,
        x: &[u32],
        z0: Vec<f32>,
        shape: [usize; 2],
        states: &mut Vec<Vec<f32>>,
    ) -> Result<Vec<Vec<f32>>, BlockError> {
        let mut x = x.to_vec();
        self.steps(&mut x, z0, shape, |z, _, _| states.push(z.to_vec())).await
    }

    /// The steps of one sweep. After each, `between` sees its z [N, T, d] and logits [N, T, V], and may change the context
    /// for the next.
    pub(super) async fn steps(
        &self,
        x: &mut [u32],
        z0: Vec<f32>,
        shape: [usize; 2],
        mut between: impl FnMut(&[f32], &[f32], &mut [u32]),
    ) -> Result<Vec<Vec<f32>>, BlockError> {
        let sigmas = self.schedule().one_sweep();
        let mut z = z0;
        let mut all = Vec::with_capacity(sigmas.len());
        for (step, (&sigma, replica)) in sigmas.iter().zip(&self.blocks).enumerate() {
            let logits = replica.denoise(x, &z, &vec![sigma as f32; shape[0]], shape).await?;
            between(&z, &logits, x);
            if let Some(next) = sigmas.get(step + 1) {
                let target = self.expected_codes(&logits);
                let keep = next / sigma;
                euler(&mut z, &target, keep);
            }
            all.push(logits);
        }
        if all.iter().flatten().all(|logit| logit.is_finite()) {
            Ok(all)
        } else {
            Err(StageError::NotFinite { what: "a logit" }.into())
        }
    }

    /// softmax(logits) codes, [R, d].
    fn expected_codes(&self, logits: &[f32]) -> Vec<f32> {
        let (vocabulary, width) = (self.vocabulary(), self.width());
        let rows = logits.len() / vocabulary;
        let mut shares = logits.to_vec();
        shares.chunks_exact_mut(vocabulary).for_each(softmax);
        let mut target = vec![0.0; rows * width];
        let shares = Matrix::new(&shares, rows, vocabulary);
        product(&mut target, Into::Replace, shares, Matrix::new(&self.codes.rows, vocabulary, width));
        target
    }
}

/// `z <- keep z + (1 - keep) target`, with keep = sigma_next / sigma.
pub(crate) fn euler(z: &mut [f32], target: &[f32], keep: f64) {
    let (keep, rest) = (keep as f32, (1.0 - keep) as f32);
    z.iter_mut().zip(target).for_each(|(z, target)| *z = keep * *z + rest * target);
}

/// A row of logits to probabilities.
pub(crate) fn softmax(row: &mut [f32]) {
    let highest = row.iter().fold(f32::NEG_INFINITY, |highest, x| highest.max(*x));
    row.iter_mut().for_each(|x| *x = libm::expf(*x - highest));
    let total: f32 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= total);
}
