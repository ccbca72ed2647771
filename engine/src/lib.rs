//! What a worker computes and the aggregation server averages: models, optimizer, parameters, self-benchmark.
//! Builds natively and for wasm32.
//!
//! A model computes on a [`device::Device`]: the processor, through this crate's own kernels, or WebGPU,
//! through burn. Everything that may read from a device is async, because a browser cannot block on a GPU. A
//! module uses those below it, never those above:
//!
//! | module | has |
//! |---|---|
//! | [`aggregation`] | block mode between rounds: robust means, the outer step, the server that checks deltas |
//! | [`checkpoint`], [`generate`], [`profile`] | files for `transformers`, text from a model, the self-benchmark |
//! | [`denoiser`] | block mode: replicas, noise, local rounds, the sweep, evaluation, rechecks |
//! | [`gpt2`] | pipeline mode: stages of GPT-2, and its layers for block mode |
//! | [`optimizer`] | AdamW, on both kinds of device |
//! | `cpu`, `gpu` | the layers as kernels for the processor, and as functions on burn's tensors |
//! | [`parameters`] | named parameters with gradients and moments, from and to safetensors files |
//! | [`device`], [`init`] | where to compute, and the counter-based random numbers |
//! | [`heap`] | memory between two steps |

#![deny(missing_docs, unreachable_pub)]

pub mod aggregation;
pub mod checkpoint;
pub(crate) mod cpu;
pub mod denoiser;
pub mod device;
pub mod generate;
pub mod gpt2;
pub(crate) mod gpu;
pub mod heap;
pub mod init;
pub mod optimizer;
pub mod parameters;
pub mod profile;
pub(crate) mod sizes;

pub use device::Device;
