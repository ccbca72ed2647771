//! The two ways of training. Decided once from the run's description; nothing else asks for it.

use protocol::spec::RunSpec;

/// How a run trains its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each device holds a range of layers, and activations pass through all of them.
    Pipeline,
    /// Each device trains one block by itself, in rounds.
    Block,
}

impl Mode {
    /// The mode of the run so described.
    pub(crate) fn of(run: &RunSpec) -> Self {
        if run.blocks.is_some() { Mode::Block } else { Mode::Pipeline }
    }
}
