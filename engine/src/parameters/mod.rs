//! The parameters of a stage, with their accumulated gradients and AdamW state.

mod burn_store;
mod export;
mod gather;
mod host_store;
mod import;

use std::borrow::Cow;

use protocol::spec::{Hop, ModelSpec, Moments, OptimizerSpec};

pub(crate) use burn_store::{BurnParameter, read};
pub(crate) use export::{Entry, entry, write};
pub(crate) use gather::{digest, gather};
pub(crate) use host_store::HostParameter;
pub(crate) use import::values;

use crate::{
    device::Device,
    init,
    shapes::{self, ParameterShape},
};

/// Why parameters cannot be loaded, read or updated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParameterError {
    #[error("the weights hold no tensor `{0}`")]
    Missing(String),
    #[error("tensor `{name}` has shape {found:?} where the model needs {expected:?}")]
    Shape { name: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("tensor `{name}` holds {found} numbers where floats are needed")]
    Kind { name: String, found: String },
    #[error("tensor `{0}` holds a number that is not finite")]
    NotFinite(String),
    #[error("the weights are not a safetensors file: {0}")]
    Format(String),
    #[error("the parts of the snapshot disagree about {0}")]
    Disagree(&'static str),
    #[error("parameter `{0}` has no gradient to update it by")]
    NoGradient(String),
    #[error("reading from the device failed: {0}")]
    Device(String),
}

/// What [`ParameterSet::read`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    Value,
    /// Sum over the micro-batches since the last update; zeros when there were none.
    Gradient,
    /// AdamW's m and v; zeros before the first update.
    FirstMoment,
    SecondMoment,
}

/// Ordered, named parameters.
///
/// Each is stored flat, beside its true shape: models give it its shape at use, and its gradient comes back
/// flat. AdamW decays a parameter if its true shape has two or more dimensions.
pub struct ParameterSet {
    shapes: Vec<ParameterShape>,
    store: Store,
    steps_done: u64,
    /// Updates AdamW's state has seen: fewer than `steps_done` after a snapshot without moments.
    adam_steps: u64,
}

/// The numbers, one entry per shape.
pub(crate) enum Store {
    Host(Vec<HostParameter>),
    Burn(Vec<BurnParameter>),
}

/// A parameter's starting point: its value and AdamW's m and v.
pub(crate) struct Loaded {
    pub value: Vec<f32>,
    pub moments: Option<(Vec<f32>, Vec<f32>)>,
}

impl ParameterSet {
    /// Draws the initial weights of what `hops` hold. The same seed gives the same bits on every device and
    /// under every partition.
    pub fn draw(model: &ModelSpec, hops: &[Hop], seed: u64, device: &Device) -> ParameterSet {
        ParameterSet::draw_shapes(shapes::of_hops(model, hops), seed, device)
    }

    /// Draws the initial values of any parameters.
    pub(crate) fn draw_shapes(shapes: Vec<ParameterShape>, seed: u64, device: &Device) -> ParameterSet {
        let loaded = shapes.iter().map(|shape| Loaded { value: init::draw(shape, seed), moments: None });
        let store = Store::new(loaded, device);
        ParameterSet { shapes, store, steps_done: 0, adam_steps: 0 }
    }

    /// Small numbers made fast, for benchmarks: drawing a large table costs more than timing it.
    pub(crate) fn cheap(model: &ModelSpec, hops: &[Hop], device: &Device) -> ParameterSet {
        let shapes = shapes::of_hops(model, hops);
        let value =
            |shape: &ParameterShape| (0..shape.len()).map(|i| (i % 97) as f32 * 4e-4 - 0.02).collect();
        let loaded = shapes.iter().map(|shape| Loaded { value: value(shape), moments: None });
        let store = Store::new(loaded, device);
        ParameterSet { shapes, store, steps_done: 0, adam_steps: 0 }
    }

    /// Takes what `hops` need from safetensors files that together hold at least that: parts of a snapshot,
    /// or a checkpoint with Hugging Face's names, with or without the prefix `transformer.`.
    ///
    /// Moments are taken if the files have them for every parameter needed; AdamW starts afresh if they have
    /// them for none.
    ///
    /// # Errors
    ///
    /// [`ParameterError`] naming the tensor that is missing, has another shape or is not made of floats.
    pub fn import<B: AsRef<[u8]>>(
        model: &ModelSpec,
        hops: &[Hop],
        files: &[B],
        device: &Device,
    ) -> Result<ParameterSet, ParameterError> {
        ParameterSet::import_shapes(shapes::of_hops(model, hops), files, device)
    }

    /// Takes any parameters from safetensors files that together hold them.
    pub(crate) fn import_shapes<B: AsRef<[u8]>>(
        shapes: Vec<ParameterShape>,
        files: &[B],
        device: &Device,
    ) -> Result<ParameterSet, ParameterError> {
        let imported = import::import(&shapes, files)?;
        let store = Store::new(imported.parameters.into_iter(), device);
        Ok(ParameterSet { shapes, store, steps_done: imported.steps_done, adam_steps: imported.adam_steps })
    }

    /// Takes new values from safetensors files and keeps AdamW's state; gradients are dropped.
    ///
    /// # Errors
    ///
    /// As for [`ParameterSet::import`]; nothing is changed then.
    pub(crate) fn rebase<B: AsRef<[u8]>>(&mut self, files: &[B]) -> Result<(), ParameterError> {
        let imported = import::import(&self.shapes, files)?;
        let values = imported.parameters.into_iter().map(|loaded| loaded.value);
        match &mut self.store {
            Store::Host(parameters) => {
                parameters.iter_mut().zip(values).for_each(|(parameter, value)| parameter.replace(value));
            }
            Store::Burn(parameters) => {
                parameters.iter_mut().zip(values).for_each(|(parameter, value)| parameter.replace(value));
            }
        }
        Ok(())
    }

    /// Forgets AdamW's state: the next update is its first.
    pub(crate) fn forget_moments(&mut self) {
        self.adam_steps = 0;
        match &mut self.store {
            Store::Host(parameters) => parameters.iter_mut().for_each(HostParameter::forget_moments),
            Store::Burn(parameters) => parameters.iter_mut().for_each(BurnParameter::forget_moments),
        }
    }

    /// Weights under their names and AdamW's state, as far as `moments` says, under `adam_m.<name>`,
    /// `adam_v.<name>` and `adam_steps`, as a safetensors file. Moments in f16 have their scale beside them, under
    /// `<moment>.scale`, and `adam_v` is then the square root. Its metadata has `steps`, the number of optimizer steps the
    /// weights have seen. Equal parameters give equal bytes.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Device`] when reading fails.
    pub async fn export(&self, moments: Moments) -> Result<Vec<u8>, ParameterError> {
        export::export(self, moments).await
    }

    /// Names and shapes, in order.
    pub fn shapes(&self) -> &[ParameterShape] {
        &self.shapes
    }

    /// Position of the parameter called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.shapes.iter().position(|shape| shape.name == name)
    }

    /// Optimizer steps the weights have seen.
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// The numbers of parameter `index`, flat, row major.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Device`] when reading fails.
    pub async fn read(&self, index: usize, quantity: Quantity) -> Result<Cow<'_, [f32]>, ParameterError> {
        match &self.store {
            Store::Host(parameters) => Ok(parameters[index].read(quantity)),
            Store::Burn(parameters) => Ok(Cow::Owned(parameters[index].read(quantity).await?)),
        }
    }

    /// Sum of squares of all accumulated gradients; 0 when there are none.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Device`] when reading fails.
    pub async fn squared_norm(&self) -> Result<f64, ParameterError> {
        match &self.store {
            Store::Host(parameters) => Ok(parameters.iter().map(HostParameter::squared_norm).sum()),
            Store::Burn(parameters) => burn_store::squared_norm(parameters).await,
        }
    }

    /// One AdamW update with the accumulated gradients times `clip_scale`, which are then cleared.
    ///
    /// Formula, for t = 1, 2, ...: g = clip_scale * gradient; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
    /// w = w (1 - lr wd) if the shape has two or more dimensions;
    /// w = w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon). Loshchilov and Hutter,
    /// <https://arxiv.org/abs/1711.05101>, as in PyTorch's AdamW.
    ///
    /// # Errors
    ///
    /// [`ParameterError::NoGradient`] when a parameter took part in no backward pass; nothing is updated.
    pub fn apply(
        &mut self,
        clip_scale: f64,
        learning_rate: f64,
        optimizer: &OptimizerSpec,
    ) -> Result<(), ParameterError> {
        let without = match &self.store {
            Store::Host(parameters) => parameters.iter().position(|parameter| !parameter.has_gradient()),
            Store::Burn(parameters) => parameters.iter().position(|parameter| !parameter.has_gradient()),
        };
        if let Some(index) = without {
            return Err(ParameterError::NoGradient(self.shapes[index].name.clone()));
        }
        self.steps_done += 1;
        self.adam_steps += 1;
        let decays = self.shapes.iter().map(ParameterShape::decays);
        match &mut self.store {
            Store::Host(parameters) => {
                for (parameter, decays) in parameters.iter_mut().zip(decays) {
                    parameter.apply(clip_scale, learning_rate, optimizer, decays, self.adam_steps);
                }
            }
            Store::Burn(parameters) => {
                for (parameter, decays) in parameters.iter_mut().zip(decays) {
                    parameter.apply(clip_scale, learning_rate, optimizer, decays, self.adam_steps);
                }
            }
        }
        Ok(())
    }

    /// Drops the accumulated gradients.
    pub fn clear_gradients(&mut self) {
        match &mut self.store {
            Store::Host(parameters) => parameters.iter_mut().for_each(HostParameter::clear_gradient),
            Store::Burn(parameters) => parameters.iter_mut().for_each(BurnParameter::clear_gradient),
        }
    }

    /// Bytes of values, gradients and moments while training.
    pub fn bytes(&self) -> u64 {
        16 * self.shapes.iter().map(|shape| shape.len() as u64).sum::<u64>()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Adds to a gradient; for tests of the optimizer alone.
    #[cfg(any(test, feature = "golden"))]
    pub(crate) fn add_gradient(&mut self, index: usize, gradient: &[f32]) {
        match &mut self.store {
            Store::Host(parameters) => parameters[index].add_gradient(gradient),
            Store::Burn(parameters) => parameters[index].add_values(gradient),
        }
    }

    /// Parameters of any names and shapes; for tests of the optimizer alone.
    #[cfg(any(test, feature = "golden"))]
    pub(crate) fn from_values(shapes: Vec<ParameterShape>, values: Vec<Vec<f32>>, device: &Device) -> Self {
        let store = Store::new(values.into_iter().map(|value| Loaded { value, moments: None }), device);
        ParameterSet { shapes, store, steps_done: 0, adam_steps: 0 }
    }
}

impl Store {
    fn new(loaded: impl Iterator<Item = Loaded>, device: &Device) -> Store {
        match device {
            Device::Host => Store::Host(loaded.map(HostParameter::new).collect()),
            Device::Burn(device) => {
                Store::Burn(loaded.map(|loaded| BurnParameter::new(loaded, device)).collect())
            }
        }
    }
}
