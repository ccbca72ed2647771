//! AdamW with decoupled weight decay, and the norm by which gradients are clipped.
//!
//! For the update t = 1, 2, ... of a parameter w with gradient g0, both of any one shape:
//!
//! ```text
//! g = clip_scale g0
//! m = beta1 m + (1 - beta1) g
//! v = beta2 v + (1 - beta2) g^2                                   m and v start at 0
//! w = w (1 - lr weight_decay)                                     only if w has two or more dimensions
//! w = w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
//! ```
//!
//! Loshchilov and Hutter, <https://arxiv.org/abs/1711.05101>, as in PyTorch's `AdamW`; `clip_scale` is
//! [`OptimizerSpec::clip_scale`] of the global norm.

mod cpu;
mod gpu;

use protocol::spec::OptimizerSpec;

use crate::parameters::{ParameterError, ParameterSet, ParameterShape, Store};

/// One update, the same for all parameters of a set.
#[derive(Clone, Copy)]
struct Update<'a> {
    clip_scale: f64,
    learning_rate: f64,
    optimizer: &'a OptimizerSpec,
    /// t, from 1.
    step: u64,
}

impl ParameterSet {
    /// Sum of squares of all accumulated gradients; 0 when there are none.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Device`] when reading fails.
    pub async fn squared_norm(&self) -> Result<f64, ParameterError> {
        match self.store() {
            Store::Cpu(parameters) => {
                let gradients = parameters.iter().filter_map(|parameter| parameter.gradient());
                Ok(gradients.map(cpu::squared_norm).sum())
            }
            Store::Burn(parameters) => gpu::squared_norm(parameters).await,
        }
    }

    /// One update ([`crate::optimizer`]) with the accumulated gradients times `clip_scale`, which are then cleared.
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
        if let Some(shape) = self.without_gradient() {
            return Err(ParameterError::NoGradient(shape.name.clone()));
        }
        let update = Update { clip_scale, learning_rate, optimizer, step: self.count_update() };
        let (shapes, store) = self.split_mut();
        let decays = shapes.iter().map(ParameterShape::decays);
        match store {
            Store::Cpu(parameters) => {
                parameters
                    .iter_mut()
                    .zip(decays)
                    .for_each(|(parameter, decays)| cpu::apply(parameter, update, decays));
            }
            Store::Burn(parameters) => {
                parameters
                    .iter_mut()
                    .zip(decays)
                    .for_each(|(parameter, decays)| gpu::apply(parameter, update, decays));
            }
        }
        Ok(())
    }
}
