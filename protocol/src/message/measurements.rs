//! What workers measure of themselves: parts of several messages.

use serde::{Deserialize, Serialize};

use crate::{
    checked::{any, at_most, checked_struct, discrete, optional, within},
    limits,
};

/// Longest time that a worker can report of anything, in seconds: about four months.
const LONGEST: f64 = 1e7;

/// Seconds from nothing to [`LONGEST`].
pub(super) fn seconds() -> impl Fn(&f64) -> crate::checked::RuleResult {
    within(0.0, LONGEST)
}

/// Seconds that are divided by: not quite nothing.
pub(super) fn positive_seconds() -> impl Fn(&f64) -> crate::checked::RuleResult {
    within(1e-9, LONGEST)
}

/// A mean cross-entropy, in nats. Rounding can make one of nearly nothing a little negative.
pub(super) fn cross_entropy<T: Copy + Into<f64>>() -> impl Fn(&T) -> crate::checked::RuleResult {
    within(-1e-3, 1e9)
}

checked_struct! {
    /// Seconds of a part of the model on one micro-batch.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct PassSeconds {
        /// Of the forward pass.
        pub forward: f64 => positive_seconds(),
        /// Of the backward pass.
        pub backward: f64 => positive_seconds(),
    }
}

impl PassSeconds {
    /// Seconds both ways.
    pub fn total(self) -> f64 {
        self.forward + self.backward
    }
}

checked_struct! {
    /// A worker's link to the coordinator, from timed frames.
    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    pub struct LinkSpeed {
        /// There and back, of an empty frame.
        pub round_trip_seconds: f64 => seconds(),
        /// Bytes per second to the coordinator.
        pub up: f64 => within(1.0, limits::LINK_RATE),
        /// Bytes per second from the coordinator.
        pub down: f64 => within(1.0, limits::LINK_RATE),
    }
}

checked_struct! {
    /// State of a worker's device, told with every step.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
    pub struct DeviceStatus {
        /// Bytes the program holds now; 0 when unknown.
        pub memory_bytes: u64 => at_most(limits::MEMORY_BYTES),
        /// None where the device does not say.
        pub pressure: Option<Pressure> => optional(any),
    }
}

/// How hard a device is at work, in the steps of the Compute Pressure API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pressure {
    /// Within what the device is made for.
    Nominal,
    /// Somewhat busy.
    Fair,
    /// Hot or throttled.
    Serious,
    /// About to be stopped by the system.
    Critical,
}

discrete!(Pressure);

checked_struct! {
    /// Where a worker's time went in one step or round, in seconds.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
    pub struct Timings {
        /// Forward passes of pipeline mode.
        pub forward: f64 => seconds(),
        /// Backward passes of pipeline mode, with the loss.
        pub backward: f64 => seconds(),
        /// Local steps of block mode, which go both ways in one and are not told apart.
        pub local_steps: f64 => seconds(),
        /// Waiting for a message.
        pub wait: f64 => seconds(),
        /// Encoding and handing frames to the socket, or a delta to the store.
        pub send: f64 => seconds(),
        /// Decoding frames, or fetching weights.
        pub receive: f64 => seconds(),
        /// Reading the gradients' norm and the AdamW update of the step before, in pipeline mode.
        pub optimizer: f64 => seconds(),
    }
}

impl Timings {
    /// Seconds of computing.
    pub fn busy(&self) -> f64 {
        self.forward + self.backward + self.local_steps + self.optimizer
    }
}
