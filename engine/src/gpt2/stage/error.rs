//! What can go wrong in a stage.

use protocol::spec::ModelSpec;

use crate::parameters::ParameterError;

/// Why a pass could not be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StageError {
    #[error("this stage does not hold hop {hop}")]
    UnknownHop { hop: u32 },
    #[error("hop {hop} {reason}")]
    WrongHop { hop: u32, reason: &'static str },
    #[error("the model cannot be built: {reason}")]
    Model { reason: &'static str },
    #[error("{what} has {found} numbers where {expected} are needed")]
    Length { what: &'static str, found: usize, expected: usize },
    #[error("a sequence of {tokens} tokens does not fit the model's {positions} positions")]
    TooLong { tokens: usize, positions: usize },
    #[error("token {token} is not in the vocabulary of {vocabulary}")]
    Token { token: u32, vocabulary: u32 },
    #[error("micro-batch {micro_batch} of hop {hop} has no forward pass to go back through")]
    NoForward { hop: u32, micro_batch: u32 },
    #[error("micro-batch {micro_batch} of hop {hop} has already had its forward pass")]
    Repeated { hop: u32, micro_batch: u32 },
    #[error("{what} is not finite")]
    NotFinite { what: &'static str },
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    #[error("this stage is for inference and has no optimizer")]
    Inference,
    #[error("the stage's parameters do not lie on its device")]
    Mixed,
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
