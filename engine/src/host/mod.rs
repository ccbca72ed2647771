//! GPT-2 on the processor: forward and backward passes on plain memory.
//!
//! burn's CPU backend runs one operation after the other, most of them on one thread, and keeps what its
//! autodiff asks for. These kernels fuse what belongs together (bias with GELU, scale with mask with softmax,
//! softmax with cross-entropy, all of AdamW), compute attention tile by tile below the diagonal only, add
//! gradients in place, and use every thread. Matrix products are those of the crate `gemm`, which burn uses too.
//!
//! Conventions: R = N * T rows; matrices are row major slices; gradients are always added to what is there.

pub(crate) mod attention;
pub(crate) mod denoiser;
pub(crate) mod embedding;
pub(crate) mod gelu;
pub(crate) mod head;
pub(crate) mod layer;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod parallel;
pub(crate) mod part;
pub(crate) mod simd;

/// Sizes of a pass: N sequences of T tokens, d features in h heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub sequences: usize,
    pub tokens: usize,
    pub width: usize,
    pub heads: usize,
}

impl Sizes {
    /// R.
    pub fn rows(&self) -> usize {
        self.sequences * self.tokens
    }
}
