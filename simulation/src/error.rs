//! Why a simulated run comes to no end.

use engine::{aggregation::server::ServerError, checkpoint::CheckpointError, denoiser::BlockError};
use protocol::{frame::FrameError, tensor::CodecError};

/// Why a simulated run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// Nobody takes part.
    #[error("there are no workers; simulate at least 1")]
    NoWorkers,
    /// A run of pipeline mode was given where rounds are simulated.
    #[error("mode is \"pipeline\", and only block mode has rounds to simulate; set mode = \"block\"")]
    NotBlockMode,
    /// Every worker's session has ended, and none comes back.
    #[error("nothing can happen any more: no worker is left; the last one ended with {0}")]
    NobodyLeft(String),
    /// All workers leave before anything came of a round.
    #[error("{0} rounds in a row were taken back: all workers leave; lower the regime's dropout")]
    InVain(u32),
    /// The run has ended before its last round.
    #[error("the run was stopped: {0}")]
    Stopped(String),
    /// The aggregation server could not go on.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A block could not be computed.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A snapshot could not be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The coordinator's own frame could not be written.
    #[error("the coordinator's own frame could not be written: {0}")]
    Frame(#[from] FrameError),
    /// Token windows do not have the run's shape.
    #[error("the token windows do not have the shape of the run: {0}")]
    Windows(#[from] CodecError),
    /// The store lacks a file that the run depends on.
    #[error("the store has lost {0}")]
    Lost(&'static str),
    /// A worker's task could not be started.
    #[error("a worker's session could not be started: {0}")]
    Spawn(#[from] futures::task::SpawnError),
}
