//! What this device is doing, as its Web Worker tells it.

use protocol::message::DrainReason;

/// What the device is doing.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Stage {
    /// Nobody pressed the button yet.
    #[default]
    Idle,
    /// The page was reloaded while this device took part: it joins again soon unless somebody cancels that.
    Rejoining {
        /// When it joins, in seconds of the page's clock.
        at: f64,
    },
    /// The Web Worker loads its program.
    Starting,
    Connecting,
    /// Timing its layers and its link.
    Benchmarking,
    /// Measured; the coordinator works out a plan.
    Measured,
    /// Without a part of the model.
    Spare,
    /// Fetching or drawing its weights.
    Loading,
    Training,
    /// Block mode: evaluating the whole model, without a part in a round so far.
    Evaluating,
    /// Without a connection.
    Reconnecting {
        /// When the next try is, in seconds of the page's clock.
        at: f64,
        reason: String,
    },
    /// Somebody pressed Stop; the worker says goodbye.
    Stopping,
    Left,
    /// The coordinator ended the run.
    Over(DrainReason),
    /// The coordinator turned this device away, with its words.
    Refused(String),
    /// The training program cannot go on, with its words.
    Failed(String),
    /// The Web Worker died.
    Crashed(String),
    /// The Web Worker's program did not load.
    Unloadable,
}

impl Stage {
    /// Whether a Web Worker is at work for this page.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(
            self,
            Stage::Idle
                | Stage::Rejoining { .. }
                | Stage::Left
                | Stage::Over(_)
                | Stage::Refused(_)
                | Stage::Failed(_)
                | Stage::Crashed(_)
                | Stage::Unloadable
        )
    }
}
