//! GPT-2 in parts, as the workers of pipeline mode hold it.
//!
//! Pre-LN transformer: learned positions, causal attention, tanh GELU, an MLP of 4 d, layer norm epsilon
//! 1e-5, a final layer norm and an LM head, no dropout. [`shapes`] has names and shapes of the parameters,
//! [`Stage`] the passes.

mod parameters;
mod part;
pub mod shapes;
mod stage;

pub use stage::{HopInput, LossOutcome, Stage, StageError};
pub(crate) use stage::{check_length, check_model, check_tokens};
