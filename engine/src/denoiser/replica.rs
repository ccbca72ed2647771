//! One worker's copy of a block, with its copy of the shared table.

use protocol::spec::{ModelSpec, OptimizerSpec, RunSpec};

use super::{
    layers_per_block,
    noise::{NoiseError, NoiseSchedule, Preconditioning},
    pass::{cpu, gpu},
    schedule, shapes,
};
use crate::{
    device::Device,
    gpt2::{StageError, check_length, check_model, check_tokens},
    init::{normal, random, stream, unit},
    parameters::{ParameterError, ParameterSet, ParameterShape, Quantity, Store, read},
    sizes::Sizes,
};

/// Why a block cannot be trained or asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BlockError {
    /// A run of pipeline mode.
    #[error("the run is not in block mode: it has no [blocks]")]
    NotBlockMode,
    /// A block beyond the last, or blocks that are missing or out of order.
    #[error("there is no block {block}: the model has {count}")]
    NoSuchBlock {
        /// Its index.
        block: u32,
        /// B.
        count: u32,
    },
    /// Layers that B does not divide.
    #[error(
        "model.layers is {layers}, which {count} blocks cannot share evenly; make it a multiple of blocks.count"
    )]
    Layers {
        /// Of the whole model.
        layers: u32,
        /// B.
        count: u32,
    },
    /// A range of sigma that makes no sense.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// Input that does not fit, or a result that is not finite.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// Files that are damaged or of another run.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
}

/// What a local step saw; both in nats, the second leaky.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepScore {
    /// Mean over the sequences of the weighted cross-entropy: what is minimised.
    pub loss: f64,
    /// Mean cross-entropy, unweighted.
    pub cross_entropy: f64,
}

/// A block in training or at inference.
///
/// Shapes are `[N, T]`, sequences and tokens; z and eps are [N, T, d], row major.
pub struct Replica {
    model: ModelSpec,
    optimizer: OptimizerSpec,
    block: u32,
    schedule: NoiseSchedule,
    device: Device,
    parameters: ParameterSet,
}

/// Sigmas and normal numbers of a batch.
pub(crate) struct Noise {
    /// One a sequence.
    pub sigma: Vec<f32>,
    /// [N, T, d]
    pub eps: Vec<f32>,
}

impl Replica {
    /// Block `block` with the table, drawn from `seed`: the same bits on every device.
    ///
    /// # Errors
    ///
    /// [`BlockError`] for a run that is not in block mode or has no such block.
    pub fn draw(run: &RunSpec, block: u32, seed: u64, device: &Device) -> Result<Replica, BlockError> {
        Replica::new(run, block, device, |shapes| Ok(ParameterSet::draw_shapes(shapes, seed, device)))
    }

    /// The same from safetensors files that together hold the block and the table.
    ///
    /// # Errors
    ///
    /// As for [`Replica::draw`], and for tensors that are missing, misshapen or not finite.
    pub fn import<B: AsRef<[u8]>>(
        run: &RunSpec,
        block: u32,
        files: &[B],
        device: &Device,
    ) -> Result<Replica, BlockError> {
        Replica::new(run, block, device, |shapes| ParameterSet::import_shapes(shapes, files, device))
    }

    fn new(
        run: &RunSpec,
        block: u32,
        device: &Device,
        parameters: impl FnOnce(Vec<ParameterShape>) -> Result<ParameterSet, ParameterError>,
    ) -> Result<Replica, BlockError> {
        let spec = run.blocks.as_ref().ok_or(BlockError::NotBlockMode)?;
        let model = run.model.clone();
        check_model(&model)?;
        let layers = layers_per_block(&model, spec)
            .ok_or(BlockError::Layers { layers: model.layers, count: spec.count })?;
        if block >= spec.count {
            return Err(BlockError::NoSuchBlock { block, count: spec.count });
        }
        let schedule = schedule(spec)?;
        let parameters = parameters(shapes::of_replica(&model, layers, block))?;
        let optimizer = run.optimizer.clone();
        Ok(Replica { model, optimizer, block, schedule, device: device.clone(), parameters })
    }

    /// Its index, from 0: block 0 owns the highest range of sigma.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// The ranges of sigma of all blocks.
    pub fn schedule(&self) -> &NoiseSchedule {
        &self.schedule
    }

    /// The whole model's sizes.
    pub fn model(&self) -> &ModelSpec {
        &self.model
    }

    /// The numbers of all parameters, in the order of [`shapes::of_replica`].
    ///
    /// # Errors
    ///
    /// [`BlockError::Parameters`] when reading fails.
    pub async fn values(&self) -> Result<Vec<Vec<f32>>, BlockError> {
        let mut values = Vec::with_capacity(self.parameters.shapes().len());
        for index in 0..self.parameters.shapes().len() {
            values.push(self.parameters.read(index, Quantity::Value).await?.into_owned());
        }
        Ok(values)
    }

    /// Takes the weights of a new round; AdamW's moments stay, unless `fresh`.
    ///
    /// # Errors
    ///
    /// As for [`Replica::import`]; nothing is changed then.
    pub fn rebase<B: AsRef<[u8]>>(&mut self, files: &[B], fresh: bool) -> Result<(), BlockError> {
        self.parameters.rebase(files)?;
        if fresh {
            self.parameters.forget_moments();
        }
        Ok(())
    }

    /// The table and the block's own parameters, in the order of [`shapes::of_replica`].
    pub fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    /// The noise of a local step: sigmas from the block's training range, and eps, from counters alone.
    pub(crate) fn noise(&self, seed: u64, step: u64, shape: [usize; 2]) -> Noise {
        let [sequences, tokens] = shape;
        let sigmas = random(stream(seed, "sigma"), step);
        let sigma = (0..sequences as u64)
            .map(|n| self.schedule.sigma(self.block, unit(random(sigmas, n))) as f32)
            .collect();
        let len = sequences * tokens * self.model.width as usize;
        Noise { sigma, eps: normal(random(stream(seed, "eps"), step), 1.0, len) }
    }

    /// Forward and backward of a batch x [N, T], y [N, T] under this noise: adds to the gradients, and gives each
    /// sequence's mean cross-entropy in nats.
    ///
    /// # Errors
    ///
    /// [`BlockError::Stage`] for input that does not fit.
    pub async fn accumulate(
        &mut self,
        x: &[u32],
        y: &[u32],
        sigma: &[f32],
        eps: Vec<f32>,
        shape: [usize; 2],
    ) -> Result<Vec<f32>, BlockError> {
        let sizes = self.sizes(x, shape)?;
        check_tokens("a batch's targets", y, sizes.rows(), self.model.vocabulary)?;
        check_length("a batch's sigmas", sigma.len(), sizes.sequences)?;
        check_length("a batch's noise", eps.len(), sizes.rows() * sizes.width)?;
        match (self.parameters.store_mut(), &self.device) {
            (Store::Cpu(parameters), Device::Cpu) => Ok(cpu::train(x, y, sigma, &eps, parameters, sizes)),
            (Store::Burn(parameters), Device::Burn(device)) => {
                let scores = gpu::train(x, y, sigma, eps, parameters, sizes, device);
                Ok(read(scores).await.map_err(StageError::Device)?)
            }
            _ => Err(StageError::Mixed.into()),
        }
    }

    /// Clips the accumulated gradients by their global norm, updates by AdamW, and gives the norm before clipping.
    ///
    /// # Errors
    ///
    /// [`StageError::NotFinite`] for a norm of NaN or infinity; nothing is updated then.
    pub async fn update(&mut self, learning_rate: f64) -> Result<f64, BlockError> {
        let norm = libm::sqrt(self.parameters.squared_norm().await?);
        if !norm.is_finite() {
            self.parameters.clear_gradients();
            return Err(StageError::NotFinite { what: "the gradients' norm" }.into());
        }
        let scale = self.optimizer.clip_scale(norm);
        self.parameters.apply(scale, learning_rate, &self.optimizer)?;
        Ok(norm)
    }

    /// One local step on a batch, with the noise of (seed, step).
    ///
    /// # Errors
    ///
    /// [`StageError::NotFinite`] for a loss or norm of NaN or infinity.
    pub async fn step(
        &mut self,
        x: &[u32],
        y: &[u32],
        shape: [usize; 2],
        (seed, step): (u64, u64),
        learning_rate: f64,
    ) -> Result<StepScore, BlockError> {
        let Noise { sigma, eps } = self.noise(seed, step, shape);
        let scores = self.accumulate(x, y, &sigma, eps, shape).await?;
        let n = scores.len() as f64;
        let weighted = scores
            .iter()
            .zip(&sigma)
            .map(|(score, sigma)| Preconditioning::at(f64::from(*sigma)).weight * f64::from(*score));
        let score = StepScore {
            loss: weighted.sum::<f64>() / n,
            cross_entropy: scores.iter().map(|score| f64::from(*score)).sum::<f64>() / n,
        };
        if !score.loss.is_finite() {
            self.parameters.clear_gradients();
            return Err(StageError::NotFinite { what: "the loss" }.into());
        }
        self.update(learning_rate).await?;
        Ok(score)
    }

    /// Logits [N, T, V] of noisy codes z [N, T, d] with the context x [N, T]; one sigma a sequence.
    ///
    /// # Errors
    ///
    /// [`BlockError::Stage`] for input that does not fit.
    pub async fn denoise(
        &self,
        x: &[u32],
        z: &[f32],
        sigma: &[f32],
        shape: [usize; 2],
    ) -> Result<Vec<f32>, BlockError> {
        Ok(self.outcome(x, z, sigma, shape).await?.1)
    }

    /// zhat [N, T, d] and logits [N, T, V] of noisy codes z [N, T, d] with the context x [N, T]; one sigma a
    /// sequence.
    ///
    /// # Errors
    ///
    /// [`BlockError::Stage`] for input that does not fit.
    pub async fn outcome(
        &self,
        x: &[u32],
        z: &[f32],
        sigma: &[f32],
        shape: [usize; 2],
    ) -> Result<(Vec<f32>, Vec<f32>), BlockError> {
        let (sizes, noise) = self.check_noisy(x, z, sigma, shape)?;
        match (self.parameters.store(), &self.device) {
            (Store::Cpu(parameters), Device::Cpu) => Ok(cpu::denoise(x, z, &noise, parameters, sizes)),
            (Store::Burn(parameters), Device::Burn(device)) => {
                let (_, zhat, logits) = gpu::denoise(x, z.to_vec(), &noise, parameters, sizes, device);
                let zhat = read(zhat).await.map_err(StageError::Device)?;
                Ok((zhat, read(logits).await.map_err(StageError::Device)?))
            }
            _ => Err(StageError::Mixed.into()),
        }
    }

    /// h0 [N, T, d], which enters the layers, of noisy codes z [N, T, d] with the context x [N, T]; one sigma
    /// a sequence.
    ///
    /// # Errors
    ///
    /// [`BlockError::Stage`] for input that does not fit.
    pub async fn layer_input(
        &self,
        x: &[u32],
        z: &[f32],
        sigma: &[f32],
        shape: [usize; 2],
    ) -> Result<Vec<f32>, BlockError> {
        let (sizes, noise) = self.check_noisy(x, z, sigma, shape)?;
        match (self.parameters.store(), &self.device) {
            (Store::Cpu(parameters), Device::Cpu) => {
                let table = parameters[shapes::index::TABLE].value();
                let codes = cpu::Codes::new(table, sizes.width);
                Ok(cpu::enter(&codes, x, z, &noise, parameters, sizes).h0)
            }
            (Store::Burn(parameters), Device::Burn(device)) => {
                let (h0, ..) = gpu::denoise(x, z.to_vec(), &noise, parameters, sizes, device);
                Ok(read(h0).await.map_err(StageError::Device)?)
            }
            _ => Err(StageError::Mixed.into()),
        }
    }

    /// Checks what a block is asked about; gives its sizes and what follows from each sigma.
    fn check_noisy(
        &self,
        x: &[u32],
        z: &[f32],
        sigma: &[f32],
        shape: [usize; 2],
    ) -> Result<(Sizes, Vec<Preconditioning>), StageError> {
        let sizes = self.sizes(x, shape)?;
        check_length("the noisy codes", z.len(), sizes.rows() * sizes.width)?;
        check_length("the sigmas", sigma.len(), sizes.sequences)?;
        let noise = sigma.iter().map(|&sigma| Preconditioning::at(f64::from(sigma))).collect();
        Ok((sizes, noise))
    }

    fn sizes(&self, x: &[u32], [sequences, tokens]: [usize; 2]) -> Result<Sizes, StageError> {
        let positions = self.model.positions as usize;
        if tokens > positions {
            return Err(StageError::TooLong { tokens, positions });
        }
        let (width, heads) = (self.model.width as usize, self.model.heads as usize);
        let sizes = Sizes { sequences, tokens, width, heads };
        if sizes.rows() == 0 {
            return Err(StageError::Length { what: "a batch", found: 0, expected: 1 });
        }
        check_tokens("a batch's tokens", x, sizes.rows(), self.model.vocabulary)?;
        Ok(sizes)
    }
}
