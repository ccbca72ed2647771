//! What a run does with its model. Decided once from the run's description; nothing else asks for it.

use protocol::spec::RunSpec;

/// What a run does with its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each device holds a range of layers, and activations pass through all of them.
    Pipeline,
    /// Each device trains one block by itself, in rounds.
    Block,
    /// Each device holds a range of layers that are not trained, and texts pass through all of them.
    Serve,
}

impl Mode {
    /// The mode of the run so described.
    pub(crate) fn of(run: &RunSpec) -> Self {
        match (&run.blocks, run.trains) {
            (Some(_), _) => Mode::Block,
            (None, true) => Mode::Pipeline,
            (None, false) => Mode::Serve,
        }
    }
}
