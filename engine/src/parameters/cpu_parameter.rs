//! Parameters in plain memory.

use std::borrow::Cow;

use super::{Loaded, Quantity};

/// One parameter, flat. The gradient and the moments are empty until there are some.
pub(crate) struct CpuParameter {
    value: Vec<f32>,
    gradient: Vec<f32>,
    /// Keeps the gradient's memory from one step to the next.
    has_gradient: bool,
    first: Vec<f32>,
    second: Vec<f32>,
}

/// A parameter under an update: its value, gradient and AdamW's m and v, all of one length.
pub(crate) struct CpuUpdate<'a> {
    pub value: &'a mut [f32],
    pub gradient: &'a [f32],
    pub first: &'a mut [f32],
    pub second: &'a mut [f32],
}

impl CpuParameter {
    pub(crate) fn new(loaded: Loaded) -> Self {
        let (first, second) = loaded.moments.unwrap_or_default();
        CpuParameter { value: loaded.value, gradient: Vec::new(), has_gradient: false, first, second }
    }

    pub(crate) fn value(&self) -> &[f32] {
        &self.value
    }

    /// The value, and the gradient to add to; zeros at first.
    pub(crate) fn split(&mut self) -> (&[f32], &mut [f32]) {
        if !self.has_gradient {
            self.gradient.clear();
            self.gradient.resize(self.value.len(), 0.0);
            self.has_gradient = true;
        }
        (&self.value, &mut self.gradient)
    }

    /// Takes another value; the gradient is dropped, AdamW's state stays.
    pub(crate) fn replace(&mut self, value: Vec<f32>) {
        self.value = value;
        self.has_gradient = false;
    }

    pub(crate) fn forget_moments(&mut self) {
        self.first.clear();
        self.second.clear();
    }

    /// The accumulated gradient; None when there is none.
    pub(crate) fn gradient(&self) -> Option<&[f32]> {
        self.has_gradient.then_some(&self.gradient)
    }

    pub(crate) fn clear_gradient(&mut self) {
        self.has_gradient = false;
    }

    /// What an update reads and writes, with moments of zeros before the first; None without a gradient, which is
    /// dropped with what is given.
    pub(crate) fn update(&mut self) -> Option<CpuUpdate<'_>> {
        if !self.has_gradient {
            return None;
        }
        self.has_gradient = false;
        self.first.resize(self.value.len(), 0.0);
        self.second.resize(self.value.len(), 0.0);
        Some(CpuUpdate {
            value: &mut self.value,
            gradient: &self.gradient,
            first: &mut self.first,
            second: &mut self.second,
        })
    }

    pub(crate) fn read(&self, quantity: Quantity) -> Cow<'_, [f32]> {
        let numbers = match quantity {
            Quantity::Value => self.value.as_slice(),
            Quantity::Gradient => self.gradient().unwrap_or_default(),
            Quantity::FirstMoment => &self.first,
            Quantity::SecondMoment => &self.second,
        };
        if numbers.is_empty() { Cow::Owned(vec![0.0; self.value.len()]) } else { Cow::Borrowed(numbers) }
    }

    /// Adds to the gradient.
    pub(crate) fn add_gradient(&mut self, gradient: &[f32]) {
        let (_, sum) = self.split();
        sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
    }
}
