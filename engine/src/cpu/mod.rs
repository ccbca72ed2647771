//! Kernels for the processor: forward and backward passes of layers on plain memory.
//!
//! burn's CPU backend runs one operation after the other, most of them on one thread, and keeps what its
//! autodiff asks for. These kernels fuse what belongs together (bias with GELU, scale with mask with softmax,
//! softmax with cross-entropy, all of AdamW), compute attention tile by tile below the diagonal only, add
//! gradients in place, and use every thread. Matrix products are those of the crate `gemm`, which burn uses too.
//!
//! Conventions: R = N * T rows; matrices are row major slices; gradients are always added to what is there.

pub(crate) mod attention;
pub(crate) mod cached;
pub(crate) mod embedding;
pub(crate) mod gelu;
pub(crate) mod head;
pub(crate) mod layer;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod parallel;
pub(crate) mod simd;
pub(crate) mod thin;
