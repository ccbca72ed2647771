//! Texts from a model, token by token.
//!
//! [`Text`] is one text without a model: it says which tokens the stages compute next, wherever they are, and hears
//! their logits. [`Decoder`] joins texts with a whole model in one process.

mod decoder;
mod drafts;
pub(crate) mod sampling;
#[cfg(test)]
mod tests;
mod text;

pub use decoder::{Decoder, Step, TextId};
pub use sampling::Sampling;
pub use text::{Feed, Progress, Request, Text, Token};
