//! Layers as pure functions on burn's tensors, for WebGPU. Gradients come from burn's autodiff.
//!
//! Parameters come flat, in the order of [`crate::gpt2::shapes`]; each function gives them their shape, which costs
//! nothing, and their gradients come back flat.

pub(crate) mod cached;
pub(crate) mod embedding;
pub(crate) mod head;
pub(crate) mod layer;

use burn_tensor::{Device, Int, Tensor, TensorData};

use crate::parameters::BurnParameter;

/// Token ids to the device, as a tensor of `shape`.
pub(crate) fn ids<const D: usize>(tokens: &[u32], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    let tokens: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
    Tensor::from_data(TensorData::new(tokens, shape), device)
}

/// The parameter as a leaf of an autodiff graph.
pub(crate) fn leaf(parameter: &BurnParameter) -> Tensor<1> {
    parameter.value().autodiff().require_grad()
}
