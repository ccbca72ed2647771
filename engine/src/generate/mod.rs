//! Texts from a model, token by token.
//!
//! [`Text`] is one text without a model: it says which tokens the stages compute next, wherever they are, and hears
//! their logits. [`Texts`] are several that advance together, and [`Decoder`] joins them with a whole model in one
//! process.

mod decoder;
mod drafts;
mod reading;
pub(crate) mod sampling;
#[cfg(test)]
mod tests;
mod text;
mod texts;

pub use decoder::Decoder;
pub use reading::Reading;
pub use sampling::Sampling;
pub use text::{Feed, Progress, Request, Text, Token};
pub use texts::{Step, TextId, Texts};
