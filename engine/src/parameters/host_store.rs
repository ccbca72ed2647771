//! Parameters in plain memory.

use std::borrow::Cow;

use protocol::spec::OptimizerSpec;

use super::{Loaded, Quantity};
use crate::host;

/// One parameter, flat. The gradient and the moments are empty until there are some.
pub(crate) struct HostParameter {
    value: Vec<f32>,
    gradient: Vec<f32>,
    /// Keeps the gradient's memory from one step to the next.
    has_gradient: bool,
    first: Vec<f32>,
    second: Vec<f32>,
}

impl HostParameter {
    pub fn new(loaded: Loaded) -> Self {
        let (first, second) = loaded.moments.unwrap_or_default();
        HostParameter { value: loaded.value, gradient: Vec::new(), has_gradient: false, first, second }
    }

    pub fn value(&self) -> &[f32] {
        &self.value
    }

    /// The value, and the gradient to add to; zeros at first.
    pub fn split(&mut self) -> (&[f32], &mut [f32]) {
        if !self.has_gradient {
            self.gradient.clear();
            self.gradient.resize(self.value.len(), 0.0);
            self.has_gradient = true;
        }
        (&self.value, &mut self.gradient)
    }

    /// Takes another value; the gradient is dropped, AdamW's state stays.
    pub fn replace(&mut self, value: Vec<f32>) {
        self.value = value;
        self.has_gradient = false;
    }

    pub fn forget_moments(&mut self) {
        self.first.clear();
        self.second.clear();
    }

    pub fn has_gradient(&self) -> bool {
        self.has_gradient
    }

    pub fn clear_gradient(&mut self) {
        self.has_gradient = false;
    }

    pub fn squared_norm(&self) -> f64 {
        if self.has_gradient { host::optimizer::squared_norm(&self.gradient) } else { 0.0 }
    }

    /// See [`super::ParameterSet::apply`]; `step` counts from 1. Without a gradient nothing happens.
    pub fn apply(
        &mut self,
        clip_scale: f64,
        learning_rate: f64,
        optimizer: &OptimizerSpec,
        decays: bool,
        step: u64,
    ) {
        if !self.has_gradient {
            return;
        }
        self.first.resize(self.value.len(), 0.0);
        self.second.resize(self.value.len(), 0.0);
        let factors = host::optimizer::Factors::new(clip_scale, learning_rate, optimizer, decays, step);
        host::optimizer::adamw(&mut self.value, &self.gradient, &mut self.first, &mut self.second, &factors);
        self.has_gradient = false;
    }

    pub fn read(&self, quantity: Quantity) -> Cow<'_, [f32]> {
        let numbers = match quantity {
            Quantity::Value => &self.value,
            Quantity::Gradient if self.has_gradient => &self.gradient,
            Quantity::Gradient => return Cow::Owned(vec![0.0; self.value.len()]),
            Quantity::FirstMoment => &self.first,
            Quantity::SecondMoment => &self.second,
        };
        if numbers.is_empty() { Cow::Owned(vec![0.0; self.value.len()]) } else { Cow::Borrowed(numbers) }
    }

    #[cfg(any(test, feature = "golden"))]
    pub fn add_gradient(&mut self, gradient: &[f32]) {
        let (_, sum) = self.split();
        sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
    }
}
