//! AdamW on a device of burn, as operations on tensors.

use burn_tensor::Tensor;

use super::Update;
use crate::parameters::{BurnParameter, BurnUpdate, ParameterError, read};

/// Updates a parameter. Without a gradient nothing happens.
pub(super) fn apply(parameter: &mut BurnParameter, update: Update<'_>, decays: bool) {
    let Update { clip_scale, learning_rate, optimizer, step } = update;
    let Some(BurnUpdate { value, gradient, moments }) = parameter.update() else { return };
    let gradient = if clip_scale == 1.0 { gradient } else { gradient.mul_scalar(clip_scale) };
    let (b1, b2) = (optimizer.beta1 as f32, optimizer.beta2 as f32);
    let (first, second) = (gradient.clone().mul_scalar(1.0 - b1), gradient.square().mul_scalar(1.0 - b2));
    let (m, v) = match moments {
        Some((m, v)) => (m.mul_scalar(b1).add(first), v.mul_scalar(b2).add(second)),
        None => (first, second),
    };
    let corrected_m = m.clone().div_scalar(1.0 - b1.powi(step as i32));
    let corrected_v = v.clone().div_scalar(1.0 - b2.powi(step as i32));
    let change = corrected_m.div(corrected_v.sqrt().add_scalar(optimizer.epsilon as f32));
    let decay = if decays { learning_rate * optimizer.weight_decay } else { 0.0 };
    let decayed = if decay == 0.0 { value } else { value.mul_scalar(1.0 - decay) };
    parameter.updated(decayed - change.mul_scalar(learning_rate), (m, v));
}

/// Sum of squares of all gradients, with one read from the device.
pub(super) async fn squared_norm(parameters: &[BurnParameter]) -> Result<f64, ParameterError> {
    let gradients = parameters.iter().filter_map(BurnParameter::gradient);
    let squares: Vec<Tensor<1>> = gradients.map(|gradient| gradient.clone().square().sum()).collect();
    if squares.is_empty() {
        return Ok(0.0);
    }
    let squares = read(Tensor::cat(squares, 0)).await.map_err(ParameterError::Device)?;
    Ok(squares.iter().map(|&square| f64::from(square)).sum())
}
