//! What can go wrong: in a task, which then tells the coordinator, and on a connection, which then ends.

use std::time::Duration;

use engine::{denoiser::BlockError, gpt2::StageError, parameters::ParameterError};
use protocol::{
    checked::FieldError,
    delta::DeltaError,
    message::{DrainReason, FaultKind},
    refusal::Refusal,
    tensor::CodecError,
};

use crate::{platform::PlatformError, schedule::ScheduleError, transfer::TransferError};

/// Why a worker cannot go on with what it was given. The coordinator is told, and decides.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum TaskError {
    #[error("this worker was given work before it was asked to measure itself")]
    NotMeasured,
    #[error("the assignment makes no sense: {0}")]
    Assignment(&'static str),
    #[error("the stage could not be loaded: {0}")]
    Load(StageError),
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error("a tensor could not be read or written: {0}")]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error("a tensor of shape {found:?} came where {wanted:?} is expected")]
    Shape { found: Vec<u32>, wanted: Vec<u32> },
    #[error("what was learned could not be written: {0}")]
    Delta(#[from] DeltaError),
    #[error("what was cached of text {text} is not here")]
    NoCache { text: u64 },
    #[error("the texts need {needed} bytes of keys and values, and this run allows {allowed}")]
    NoRoom { needed: u64, allowed: u64 },
    #[error("training has gone wrong: {0}")]
    Report(#[from] FieldError),
}

impl TaskError {
    /// What to tell the coordinator.
    pub(crate) fn kind(&self) -> FaultKind {
        match self {
            // A report is made of what was computed; a delta, of what was trained.
            TaskError::Stage(StageError::NotFinite { .. })
            | TaskError::Block(BlockError::Stage(StageError::NotFinite { .. }))
            | TaskError::Codec(CodecError::NotFinite { .. })
            | TaskError::Report(_)
            | TaskError::Delta(_) => FaultKind::NotFinite,
            TaskError::Codec(_)
            | TaskError::Shape { .. }
            | TaskError::Schedule(_)
            | TaskError::Stage(StageError::Token { .. } | StageError::Length { .. })
            | TaskError::Block(BlockError::Stage(StageError::Token { .. } | StageError::Length { .. })) => {
                FaultKind::BadTensor
            }
            TaskError::Load(StageError::Device(_) | StageError::Parameters(ParameterError::Device(_)))
            | TaskError::Block(
                BlockError::Stage(StageError::Device(_)) | BlockError::Parameters(ParameterError::Device(_)),
            )
            | TaskError::Stage(_)
            | TaskError::NoCache { .. }
            | TaskError::NoRoom { .. }
            | TaskError::NotMeasured => FaultKind::Device,
            TaskError::Load(_) | TaskError::Assignment(_) | TaskError::Block(_) => FaultKind::Weights,
        }
    }
}

/// How a session came to its end.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// The run is over.
    Over(DrainReason),
    /// Asked to leave.
    Left,
    /// The coordinator turned this worker away, in these words.
    Refused(String),
    /// This device cannot go on, in these words.
    Failed(String),
}

/// Why a connection ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
    /// And the session with it.
    End(End),
    /// Another try may help.
    Lost(String),
    /// The coordinator said when to try again.
    Again { after: Duration, reason: String },
}

impl Stop {
    pub(crate) fn failed(words: impl Into<String>) -> Self {
        Stop::End(End::Failed(words.into()))
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        let reason = refusal.to_string();
        match refusal.retry_after() {
            Some(after) => Stop::Again { after, reason },
            None => Stop::End(End::Refused(reason)),
        }
    }
}

impl From<PlatformError> for Stop {
    fn from(error: PlatformError) -> Self {
        Stop::Lost(error.0)
    }
}

impl From<TransferError> for Stop {
    fn from(error: TransferError) -> Self {
        match error {
            // The next try would meet the same proxy or the same run.
            TransferError::PieceTooLarge { .. } | TransferError::BlobTooLarge { .. } => {
                Stop::failed(error.to_string())
            }
            other => Stop::Lost(other.to_string()),
        }
    }
}
