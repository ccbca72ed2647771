//! Windows of tokens for training and validation, computed from numbers alone.
//!
//! Nothing is stored between batches: which tokens belong to (seed, step, micro-batch) is a function of these
//! numbers and the sizes, so any step can be served again, in any order, after any restart.

use std::sync::Arc;

use control::mix::mix;

use super::{permutation::Permutation, token_file::TokenFile};

/// Size of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowShape {
    /// N, sequences in a batch; at least 1.
    pub sequences: u32,
    /// T, tokens in a sequence; at least 1.
    pub context: u32,
}

/// Token ids of a batch, row major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// [N, T]
    pub inputs: Vec<u32>,
    /// [N, T]: the token that follows each input.
    pub targets: Vec<u32>,
}

/// A split has not one window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {split} split has {tokens} tokens, but a window takes {needed} (training.context + 1): give a longer \
     corpus in data.source, lower training.context, or {fraction} data.validation_fraction"
)]
pub struct SplitTooShort {
    /// Name of the split.
    pub split: &'static str,
    /// Tokens in the split.
    pub tokens: u64,
    /// Tokens in one window.
    pub needed: u64,
    fraction: &'static str,
}

/// Where one training sequence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowPlace {
    /// Passes over the training split before this one.
    pub epoch: u64,
    /// Number of the window in its epoch, in the order of the text; below [`TrainWindows::per_epoch`].
    pub window: u64,
    /// First token; the window has T + 1.
    pub start: u64,
}

/// Batches of the training split.
///
/// An epoch cuts the split into windows of T + 1 tokens that share one token with the next (it is target in
/// one and input in the other), starting at an offset below T drawn for the epoch, and goes through them in a
/// pseudo-random order. Each window comes exactly once an epoch. The offset costs an epoch at most 2T - 1
/// tokens at the ends, other ones each time.
#[derive(Debug, Clone)]
pub struct TrainWindows {
    tokens: Arc<TokenFile>,
    seed: u64,
    shape: WindowShape,
    micro_batches: u32,
    per_epoch: u64,
    offsets: u64,
}

impl TrainWindows {
    /// `micro_batches` is M, batches in a step; at least 1.
    ///
    /// # Errors
    /// A split without one window.
    pub fn new(
        tokens: Arc<TokenFile>,
        seed: u64,
        shape: WindowShape,
        micro_batches: u32,
    ) -> Result<Self, SplitTooShort> {
        let (split, context) = (tokens.train_tokens(), u64::from(shape.context));
        if split <= context {
            return Err(SplitTooShort {
                split: "training",
                tokens: split,
                needed: context + 1,
                fraction: "lower",
            });
        }
        // One window less than fits leaves room for every offset below T.
        let per_epoch = (split / context.max(1)).saturating_sub(1).max(1);
        let offsets = (split - per_epoch * context).clamp(1, context.max(1));
        Ok(Self { tokens, seed, shape, micro_batches, per_epoch, offsets })
    }

    /// Cut the data for another M.
    pub fn set_micro_batches(&mut self, micro_batches: u32) {
        self.micro_batches = micro_batches;
    }

    /// Windows in an epoch.
    pub fn per_epoch(&self) -> u64 {
        self.per_epoch
    }

    /// Size of a batch.
    pub fn shape(&self) -> WindowShape {
        self.shape
    }

    /// Where sequence `sequence` (below N) of a micro-batch comes from.
    pub fn place(&self, step: u64, micro_batch: u32, sequence: u32) -> WindowPlace {
        let [m, n, micro_batch, sequence] =
            [self.micro_batches, self.shape.sequences, micro_batch, sequence].map(u128::from);
        let number = (u128::from(step) * m + micro_batch) * n + sequence;
        let epoch = (number / u128::from(self.per_epoch)) as u64;
        let turn = (number % u128::from(self.per_epoch)) as u64;
        let key = mix(mix(self.seed) ^ epoch);
        let window = Permutation::new(self.per_epoch, key).at(turn);
        // A key of its own, so that offset and order are unrelated.
        let offset = mix(!key) % self.offsets;
        WindowPlace { epoch, window, start: offset + window * u64::from(self.shape.context) }
    }

    /// The batch of micro-batch `micro_batch` (below M) of optimizer step `step`, both from 0.
    pub fn batch(&self, step: u64, micro_batch: u32) -> Batch {
        let starts = (0..self.shape.sequences).map(|n| self.place(step, micro_batch, n).start);
        cut(&self.tokens, starts, self.shape)
    }
}

/// Batches of the held-out split, in the order of the text and without overlap.
#[derive(Debug, Clone)]
pub struct ValidationWindows {
    tokens: Arc<TokenFile>,
    shape: WindowShape,
    windows: u64,
}

impl ValidationWindows {
    /// Windows of the held-out split.
    ///
    /// # Errors
    /// A split without one window.
    pub fn new(tokens: Arc<TokenFile>, shape: WindowShape) -> Result<Self, SplitTooShort> {
        let (split, context) = (tokens.len() - tokens.train_tokens(), u64::from(shape.context));
        if split <= context {
            return Err(SplitTooShort {
                split: "validation",
                tokens: split,
                needed: context + 1,
                fraction: "raise",
            });
        }
        Ok(Self { tokens, shape, windows: (split - 1) / context.max(1) })
    }

    /// Size of a batch.
    pub fn shape(&self) -> WindowShape {
        self.shape
    }

    /// Batches without a repeated window; 1 if the split has fewer windows than a batch.
    pub fn batches(&self) -> u64 {
        (self.windows / u64::from(self.shape.sequences.max(1))).max(1)
    }

    /// Batch `index`, from 0; after the last window it starts again at the first.
    pub fn batch(&self, index: u64) -> Batch {
        let first = u128::from(index) * u128::from(self.shape.sequences);
        let starts = (0..self.shape.sequences).map(|n| {
            let window = ((first + u128::from(n)) % u128::from(self.windows)) as u64;
            self.tokens.train_tokens() + window * u64::from(self.shape.context)
        });
        cut(&self.tokens, starts, self.shape)
    }
}

fn cut(tokens: &TokenFile, starts: impl Iterator<Item = u64>, shape: WindowShape) -> Batch {
    let context = shape.context as usize;
    let size = context * shape.sequences as usize;
    let mut batch = Batch { inputs: Vec::with_capacity(size), targets: Vec::with_capacity(size) };
    let mut window = Vec::with_capacity(context + 1);
    for start in starts {
        window.clear();
        tokens.read(start, context + 1, &mut window);
        batch.inputs.extend_from_slice(&window[..context]);
        batch.targets.extend_from_slice(&window[1..]);
    }
    batch
}
