//! What this device has done: steps of pipeline mode, rounds of block mode.

use protocol::message::Timings;

/// The last step this device finished, and sums over all of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Work {
    /// Optimizer steps that the weights have seen.
    pub(crate) step: u64,
    /// Of the last step.
    pub(crate) timings: Timings,
    /// Mean loss of the last step in nats per token, where this device holds the head.
    pub(crate) loss: Option<f64>,
    /// Steps with this device.
    pub(crate) steps: u64,
    /// In those steps.
    pub(crate) micro_batches: u64,
    /// Bytes since the session began.
    pub(crate) bytes_sent: u64,
    /// Bytes since the session began.
    pub(crate) bytes_received: u64,
}

/// How far a round of block mode is on this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Fetching the block as it is now.
    Fetching,
    /// Local steps done, of so many.
    Training {
        step: u32,
        steps: u32,
    },
    /// The delta is with the coordinator, which has not checked it yet.
    Sent,
    Accepted,
    Refused,
}

/// A round of block mode.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Round {
    /// From 0, as on the wire.
    pub(crate) number: u64,
    pub(crate) block: u32,
    pub(crate) progress: Progress,
    /// Of the last local step, in nats; leaky: see [`SessionEvent::LocalStep`].
    pub(crate) cross_entropy: Option<f64>,
}

/// What came of this device's rounds since the button was pressed.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rounds {
    /// Deltas sent, in time or not.
    pub(crate) sent: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// The last refusal: number of the round and why.
    pub(crate) refusal: Option<(u64, String)>,
    /// Times of the last round that was sent.
    pub(crate) timings: Option<Timings>,
    /// Bytes since the session began.
    pub(crate) bytes_sent: u64,
    /// Bytes since the session began.
    pub(crate) bytes_received: u64,
}
