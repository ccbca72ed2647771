//! The parameters of a stage, with their accumulated gradients and AdamW state.

mod burn_parameter;
mod cpu_parameter;
mod export;
mod gather;
mod import;
mod shape;

use std::borrow::Cow;

use protocol::spec::Moments;

pub(crate) use burn_parameter::{BurnParameter, BurnUpdate, read};
pub(crate) use cpu_parameter::{CpuParameter, CpuUpdate};
pub(crate) use export::{Entry, STEPS, entry, write};
pub(crate) use gather::{digest, gather};
pub(crate) use import::values;
pub use shape::ParameterShape;

use crate::device::Device;

/// Why parameters cannot be loaded, read or updated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// A tensor that no file has.
    #[error("the weights hold no tensor `{0}`")]
    Missing(String),
    /// A tensor of another shape, as of another model.
    #[error("tensor `{name}` has shape {found:?} where the model needs {expected:?}")]
    Shape {
        /// Of the tensor.
        name: String,
        /// In the file.
        found: Vec<usize>,
        /// By the model.
        expected: Vec<usize>,
    },
    /// A tensor of something else than F32, F16 or BF16.
    #[error("tensor `{name}` holds {found} numbers where floats are needed")]
    Kind {
        /// Of the tensor.
        name: String,
        /// The kind of its numbers, as safetensors calls it.
        found: String,
    },
    /// A tensor with NaN or infinity.
    #[error("tensor `{0}` holds a number that is not finite")]
    NotFinite(String),
    /// A second moment, a mean of squares, with a number below zero.
    #[error("tensor `{0}` holds a negative number where AdamW keeps squares")]
    Negative(String),
    /// A file that is damaged or of another kind.
    #[error("the weights are not a safetensors file: {0}")]
    Format(String),
    /// Parts of different steps.
    #[error("the parts of the snapshot disagree about {0}")]
    Disagree(&'static str),
    /// An update before every parameter took part in a backward pass.
    #[error("parameter `{0}` has no gradient to update it by")]
    NoGradient(String),
    /// Reading from the device failed, in the device's words.
    #[error("reading from the device failed: {0}")]
    Device(String),
}

/// What [`ParameterSet::read`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// The parameter itself.
    Value,
    /// Sum over the micro-batches since the last update; zeros when there were none.
    Gradient,
    /// AdamW's m; zeros before the first update.
    FirstMoment,
    /// AdamW's v; zeros before the first update.
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
    Cpu(Vec<CpuParameter>),
    Burn(Vec<BurnParameter>),
}

/// A parameter's starting point: its value and AdamW's m and v.
pub(crate) struct Loaded {
    pub value: Vec<f32>,
    pub moments: Option<(Vec<f32>, Vec<f32>)>,
}

impl ParameterSet {
    /// Draws the initial values of any parameters.
    pub(crate) fn draw_shapes(shapes: Vec<ParameterShape>, seed: u64, device: &Device) -> ParameterSet {
        let values = shapes.iter().map(|shape| shape.draw(seed)).collect();
        ParameterSet::untrained(shapes, values, device)
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
            Store::Cpu(parameters) => {
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
            Store::Cpu(parameters) => parameters.iter_mut().for_each(CpuParameter::forget_moments),
            Store::Burn(parameters) => parameters.iter_mut().for_each(BurnParameter::forget_moments),
        }
    }

    /// Weights under their names and AdamW's state, as far as `moments` says, under `adam_m.<name>`,
    /// `adam_v.<name>` and `adam_steps`, as a safetensors file. Moments in f16 have their scale beside them,
    /// under `<moment>.scale`, and `adam_v` is then the square root. Its metadata has `steps`, the number of
    /// optimizer steps the weights have seen. Equal parameters give equal bytes.
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

    /// Updates that AdamW's moments have seen: 0 without moments, and else at most [`ParameterSet::steps_done`].
    pub fn adam_steps(&self) -> u64 {
        self.adam_steps
    }

    /// The numbers of parameter `index`, in the order of [`ParameterSet::shapes`]: flat, row major.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Device`] when reading fails.
    pub async fn read(&self, index: usize, quantity: Quantity) -> Result<Cow<'_, [f32]>, ParameterError> {
        match &self.store {
            Store::Cpu(parameters) => Ok(parameters[index].read(quantity)),
            Store::Burn(parameters) => Ok(Cow::Owned(parameters[index].read(quantity).await?)),
        }
    }

    /// The first parameter without an accumulated gradient.
    pub(crate) fn without_gradient(&self) -> Option<&ParameterShape> {
        let index = match &self.store {
            Store::Cpu(parameters) => parameters.iter().position(|parameter| parameter.gradient().is_none()),
            Store::Burn(parameters) => parameters.iter().position(|parameter| parameter.gradient().is_none()),
        };
        index.map(|index| &self.shapes[index])
    }

    /// Counts an update, and gives AdamW's number of it: 1 for the first since its moments began.
    pub(crate) fn count_update(&mut self) -> u64 {
        self.steps_done += 1;
        self.adam_steps += 1;
        self.adam_steps
    }

    /// Every parameter's numbers to change, in the order of the shapes given with them.
    pub(crate) fn split_mut(&mut self) -> (&[ParameterShape], &mut Store) {
        (&self.shapes, &mut self.store)
    }

    /// Drops the accumulated gradients.
    pub fn clear_gradients(&mut self) {
        match &mut self.store {
            Store::Cpu(parameters) => parameters.iter_mut().for_each(CpuParameter::clear_gradient),
            Store::Burn(parameters) => parameters.iter_mut().for_each(BurnParameter::clear_gradient),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Adds `gradient`, flat, to that of the parameter called `name`.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Missing`] for another name, [`ParameterError::Shape`] for another length.
    pub fn add_gradient(&mut self, name: &str, gradient: &[f32]) -> Result<(), ParameterError> {
        let index = self.position(name).ok_or_else(|| ParameterError::Missing(name.into()))?;
        check_len(&self.shapes[index], gradient)?;
        match &mut self.store {
            Store::Cpu(parameters) => parameters[index].add_gradient(gradient),
            Store::Burn(parameters) => parameters[index].add_gradient(gradient),
        }
        Ok(())
    }

    /// Parameters of any names and shapes, each with its values, flat.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Shape`] for values of another length than their shape's.
    pub fn from_values(
        parameters: Vec<(ParameterShape, Vec<f32>)>,
        device: &Device,
    ) -> Result<ParameterSet, ParameterError> {
        parameters.iter().try_for_each(|(shape, values)| check_len(shape, values))?;
        let (shapes, values) = parameters.into_iter().unzip();
        Ok(ParameterSet::untrained(shapes, values, device))
    }

    /// Parameters before their first update; `values` are one for each shape.
    pub(crate) fn untrained(
        shapes: Vec<ParameterShape>,
        values: Vec<Vec<f32>>,
        device: &Device,
    ) -> ParameterSet {
        let store = Store::new(values.into_iter().map(|value| Loaded { value, moments: None }), device);
        ParameterSet { shapes, store, steps_done: 0, adam_steps: 0 }
    }
}

fn check_len(shape: &ParameterShape, values: &[f32]) -> Result<(), ParameterError> {
    if values.len() == shape.len() {
        return Ok(());
    }
    let (found, expected) = (vec![values.len()], shape.shape.clone());
    Err(ParameterError::Shape { name: shape.name.clone(), found, expected })
}

impl Store {
    fn new(loaded: impl Iterator<Item = Loaded>, device: &Device) -> Store {
        match device {
            Device::Cpu => Store::Cpu(loaded.map(CpuParameter::new).collect()),
            Device::Burn(device) => {
                Store::Burn(loaded.map(|loaded| BurnParameter::new(loaded, device)).collect())
            }
        }
    }
}
