//! Parameters as tensors of burn.

use burn_tensor::{Device, Tensor, TensorData};
use protocol::spec::OptimizerSpec;

use super::{Loaded, ParameterError, Quantity};

/// One parameter, flat; none of its tensors is on an autodiff device.
pub(crate) struct BurnParameter {
    value: Tensor<1>,
    gradient: Option<Tensor<1>>,
    /// AdamW's m and v.
    moments: Option<(Tensor<1>, Tensor<1>)>,
}

impl BurnParameter {
    pub fn new(loaded: Loaded, device: &Device) -> Self {
        let moments = loaded.moments.map(|(m, v)| (flat(m, device), flat(v, device)));
        BurnParameter { value: flat(loaded.value, device), gradient: None, moments }
    }

    pub fn value(&self) -> Tensor<1> {
        self.value.clone()
    }

    /// Takes another value; the gradient is dropped, AdamW's state stays.
    pub fn replace(&mut self, value: Vec<f32>) {
        self.value = flat(value, &self.value.device());
        self.gradient = None;
    }

    pub fn forget_moments(&mut self) {
        self.moments = None;
    }

    /// Adds a micro-batch's gradient.
    pub fn accumulate(&mut self, gradient: Tensor<1>) {
        self.gradient = Some(match self.gradient.take() {
            Some(sum) => sum + gradient,
            None => gradient,
        });
    }

    pub fn has_gradient(&self) -> bool {
        self.gradient.is_some()
    }

    pub fn clear_gradient(&mut self) {
        self.gradient = None;
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
        let Some(gradient) = self.gradient.take() else { return };
        let gradient = if clip_scale == 1.0 { gradient } else { gradient.mul_scalar(clip_scale) };
        let (b1, b2) = (optimizer.beta1 as f32, optimizer.beta2 as f32);
        let (first, second) = (gradient.clone().mul_scalar(1.0 - b1), gradient.square().mul_scalar(1.0 - b2));
        let (m, v) = match self.moments.take() {
            Some((m, v)) => (m.mul_scalar(b1).add(first), v.mul_scalar(b2).add(second)),
            None => (first, second),
        };
        let corrected_m = m.clone().div_scalar(1.0 - b1.powi(step as i32));
        let corrected_v = v.clone().div_scalar(1.0 - b2.powi(step as i32));
        let update = corrected_m.div(corrected_v.sqrt().add_scalar(optimizer.epsilon as f32));
        let decay = if decays { learning_rate * optimizer.weight_decay } else { 0.0 };
        let decayed =
            if decay == 0.0 { self.value.clone() } else { self.value.clone().mul_scalar(1.0 - decay) };
        self.value = decayed - update.mul_scalar(learning_rate);
        self.moments = Some((m, v));
    }

    pub async fn read(&self, quantity: Quantity) -> Result<Vec<f32>, ParameterError> {
        let tensor = match quantity {
            Quantity::Value => Some(&self.value),
            Quantity::Gradient => self.gradient.as_ref(),
            Quantity::FirstMoment => self.moments.as_ref().map(|(m, _)| m),
            Quantity::SecondMoment => self.moments.as_ref().map(|(_, v)| v),
        };
        match tensor {
            Some(tensor) => read(tensor.clone()).await.map_err(ParameterError::Device),
            None => Ok(vec![0.0; self.value.dims()[0]]),
        }
    }

    #[cfg(any(test, feature = "golden"))]
    pub fn add_values(&mut self, gradient: &[f32]) {
        self.accumulate(flat(gradient.to_vec(), &self.value.device()));
    }
}

/// Sum of squares of all gradients, with one read from the device.
pub(crate) async fn squared_norm(parameters: &[BurnParameter]) -> Result<f64, ParameterError> {
    let squares: Vec<Tensor<1>> = parameters
        .iter()
        .filter_map(|parameter| parameter.gradient.clone())
        .map(|gradient| gradient.square().sum())
        .collect();
    if squares.is_empty() {
        return Ok(0.0);
    }
    let squares = read(Tensor::cat(squares, 0)).await.map_err(ParameterError::Device)?;
    Ok(squares.iter().map(|&square| f64::from(square)).sum())
}

/// Reads a tensor of floats, row major. The error is in words.
pub(crate) async fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, String> {
    let data = tensor.into_data_async().await.map_err(|error| error.to_string())?;
    data.try_into_vec::<f32>().map_err(|error| error.to_string())
}

fn flat(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len]), device)
}
