//! What can go wrong in a stage.

use protocol::spec::ModelSpec;

use crate::parameters::ParameterError;

/// Why a pass could not be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StageError {
    /// A pass through a hop that is another worker's.
    #[error("this stage does not hold hop {hop}")]
    UnknownHop {
        /// Its index in the plan.
        hop: u32,
    },
    /// A hop that cannot do what is asked of it, or cannot be built.
    #[error("hop {hop} {reason}")]
    WrongHop {
        /// Its index in the plan.
        hop: u32,
        /// What it lacks, as the rest of the sentence.
        reason: &'static str,
    },
    /// A model of impossible sizes.
    #[error("the model cannot be built: {reason}")]
    Model {
        /// Which size, and what it must be.
        reason: &'static str,
    },
    /// Too few or too many numbers.
    #[error("{what} has {found} numbers where {expected} are needed")]
    Length {
        /// The input.
        what: &'static str,
        /// Numbers in it.
        found: usize,
        /// Numbers that the shape asks for.
        expected: usize,
    },
    /// A sequence longer than the position table.
    #[error("a sequence of {tokens} tokens does not fit the model's {positions} positions")]
    TooLong {
        /// T.
        tokens: usize,
        /// Rows of the position table.
        positions: usize,
    },
    /// A token id that is not in the table.
    #[error("token {token} is not in the vocabulary of {vocabulary}")]
    Token {
        /// The id.
        token: u32,
        /// V.
        vocabulary: u32,
    },
    /// A backward pass of a micro-batch that has no activations here.
    #[error("micro-batch {micro_batch} of hop {hop} has no forward pass to go back through")]
    NoForward {
        /// Index in the plan.
        hop: u32,
        /// Index in the step.
        micro_batch: u32,
    },
    /// A second forward pass before the backward pass of the first.
    #[error("micro-batch {micro_batch} of hop {hop} has already had its forward pass")]
    Repeated {
        /// Index in the plan.
        hop: u32,
        /// Index in the step.
        micro_batch: u32,
    },
    /// A cache that was made for another hop, model or device.
    #[error("the cache was not made for hop {hop} of this stage")]
    WrongCache {
        /// Index in the plan.
        hop: u32,
    },
    /// NaN or infinity where training cannot go on with it.
    #[error("{what} is not finite")]
    NotFinite {
        /// The number.
        what: &'static str,
    },
    /// Parameters that are missing, misshapen or without a gradient.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// An update of a stage made for inference.
    #[error("this stage is for inference and has no optimizer")]
    Inference,
    /// Parameters made for another kind of device.
    #[error("the stage's parameters do not lie on its device")]
    Mixed,
    /// Reading from the device failed, in the device's words.
    #[error("the device failed: {0}")]
    Device(String),
}

/// Whether `model` can be computed at all.
pub(crate) fn check_model(model: &ModelSpec) -> Result<(), StageError> {
    let reason = if model.heads == 0 || model.width == 0 || !model.width.is_multiple_of(model.heads) {
        "its width must be a multiple of its number of heads"
    } else if model.vocabulary == 0 || model.positions == 0 {
        "it needs a vocabulary and positions"
    } else {
        return Ok(());
    };
    Err(StageError::Model { reason })
}

/// Whether `found` numbers came where `expected` are needed.
pub(crate) fn check_length(what: &'static str, found: usize, expected: usize) -> Result<(), StageError> {
    if found == expected { Ok(()) } else { Err(StageError::Length { what, found, expected }) }
}

/// Whether `tokens` are as many as expected and all in the vocabulary.
pub(crate) fn check_tokens(
    what: &'static str,
    tokens: &[u32],
    expected: usize,
    vocabulary: u32,
) -> Result<(), StageError> {
    check_length(what, tokens.len(), expected)?;
    match tokens.iter().find(|&&token| token >= vocabulary) {
        Some(&token) => Err(StageError::Token { token, vocabulary }),
        None => Ok(()),
    }
}
