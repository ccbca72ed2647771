//! GPT-2 as pure functions on burn's tensors, for WebGPU. Gradients come from burn's autodiff.
//!
//! Parameters come flat, in the order of [`crate::shapes`]; each function gives them their shape, which costs
//! nothing, and their gradients come back flat.

pub(crate) mod denoiser;
pub(crate) mod embedding;
pub(crate) mod head;
pub(crate) mod layer;
pub(crate) mod part;
