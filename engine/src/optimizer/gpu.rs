//! AdamW on a device of burn, through burn's own optimizer.

use burn::{
    optim::{AdamWConfig, AdamWState, AdaptiveMomentumState, Optimizer},
    tensor::Tensor,
};

use super::Update;
use crate::parameters::{BurnParameter, BurnUpdate, ParameterError, read};

/// Updates a parameter. Without a gradient nothing happens.
pub(super) fn apply(parameter: &mut BurnParameter, update: Update<'_>, decays: bool) {
    let Update { clip_scale, learning_rate, optimizer, step } = update;
    let Some(BurnUpdate { value, gradient, moments }) = parameter.update() else { return };
    let adamw = AdamWConfig::new()
        .with_beta_1(optimizer.beta1 as f32)
        .with_beta_2(optimizer.beta2 as f32)
        .with_epsilon(optimizer.epsilon as f32)
        .with_weight_decay(if decays { optimizer.weight_decay as f32 } else { 0.0 })
        .build();
    let state = moments.map(|(m, v)| {
        // burn counts the update it is about to make itself.
        AdamWState::new(AdaptiveMomentumState::new((step - 1) as usize, m, v))
    });
    let gradient = if clip_scale == 1.0 { gradient } else { gradient.mul_scalar(clip_scale) };
    let (value, state) = adamw.step(learning_rate, value, gradient, state);
    parameter.updated(value, state.map(|state| (state.momentum.moment_1, state.momentum.moment_2)));
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
