//! GPT-2 in parts, as the workers of pipeline mode hold it.
//!
//! Pre-LN transformer: learned positions, causal attention, tanh GELU, an MLP of 4 d, layer norm epsilon
//! 1e-5, a final layer norm and an LM head, no dropout. [`shapes`] has names and shapes of the parameters,
//! [`Stage`] the passes, [`Cache`] what a request keeps between two passes of text generation.

mod cache;
mod parameters;
mod part;
pub mod shapes;
mod stage;

pub use cache::Cache;
pub use stage::{Decode, HopInput, LossOutcome, Stage, StageError};
pub(crate) use stage::{check_length, check_model, check_tokens};
