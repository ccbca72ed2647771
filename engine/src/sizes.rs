//! Sizes of a pass over a batch.

/// Sizes of a pass: N sequences of T tokens, d features in h heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// N.
    pub sequences: usize,
    /// T.
    pub tokens: usize,
    /// d.
    pub width: usize,
    /// h, which divides d.
    pub heads: usize,
}

impl Sizes {
    /// R = N * T.
    pub(crate) fn rows(&self) -> usize {
        self.sequences * self.tokens
    }
}
