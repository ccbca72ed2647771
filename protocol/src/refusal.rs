//! Why the coordinator turns a frame or a worker away. A person reads the words, a program the variant.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    checked::{Checked, RuleResult, text},
    limits::{LABEL, SENTENCE},
};

/// Why a frame or a worker is turned away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The frame or its sender is of another protocol version.
    #[error(
        "this worker speaks protocol version {theirs}, the coordinator speaks {ours}: reload the page, or update the program, so that both are of one build"
    )]
    Version {
        /// Of the worker.
        theirs: u8,
        /// Of the coordinator.
        ours: u8,
    },
    /// The frame is not one of this protocol, or a field breaks its rule.
    #[error("the frame could not be read: {detail}")]
    Malformed {
        /// One sentence.
        detail: String,
    },
    /// The frame is too long.
    #[error("the frame is {bytes} bytes long, at most {limit} are allowed")]
    Oversized {
        /// Its length in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A message out of turn.
    #[error("{message} was not expected now: {detail}")]
    Unexpected {
        /// The message's name.
        message: String,
        /// One sentence.
        detail: String,
    },
    /// A tensor that its sender does not hold the part for, or with an address that nobody has.
    #[error("{message} does not fit the plan: {detail}")]
    NotInPlan {
        /// The message's name.
        message: String,
        /// One sentence.
        detail: String,
    },
    /// A profile that no plan can be made with.
    #[error("the profile cannot be used: {detail}")]
    BadProfile {
        /// One sentence.
        detail: String,
    },
    /// There is no room for another worker.
    #[error("the run is full: {workers} workers are connected")]
    Full {
        /// How many there are.
        workers: u32,
    },
    /// The run has ended.
    #[error("the run is over")]
    RunOver,
    /// By the organizer.
    #[error("the organizer removed this worker")]
    Removed,
    /// The worker was silent for too long.
    #[error("nothing was heard from this worker for {seconds} s")]
    LeaseEnded {
        /// The lease.
        seconds: u32,
    },
    /// There is too much from the worker's address, or from all together.
    #[error("{detail}")]
    Crowded {
        /// One sentence.
        detail: String,
        /// When to try again.
        seconds: u32,
    },
}

impl Refusal {
    /// Which refusal it is, for counters.
    pub fn name(&self) -> &'static str {
        match self {
            Refusal::Version { .. } => "version",
            Refusal::Malformed { .. } => "malformed",
            Refusal::Oversized { .. } => "oversized",
            Refusal::Unexpected { .. } => "unexpected",
            Refusal::NotInPlan { .. } => "not_in_plan",
            Refusal::BadProfile { .. } => "bad_profile",
            Refusal::Full { .. } => "full",
            Refusal::RunOver => "run_over",
            Refusal::Removed => "removed",
            Refusal::LeaseEnded { .. } => "lease_ended",
            Refusal::Crowded { .. } => "crowded",
        }
    }

    /// How long to wait before connecting again; None: trying again is of no use.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            // Somebody may leave.
            Refusal::Full { .. } => Some(Duration::from_secs(30)),
            // The device slept, or its network was gone, and it is back.
            Refusal::LeaseEnded { .. } => Some(Duration::ZERO),
            Refusal::Crowded { seconds, .. } => Some(Duration::from_secs(u64::from(*seconds))),
            Refusal::Version { .. }
            | Refusal::Malformed { .. }
            | Refusal::Oversized { .. }
            | Refusal::Unexpected { .. }
            | Refusal::NotInPlan { .. }
            | Refusal::BadProfile { .. }
            | Refusal::RunOver
            | Refusal::Removed => None,
        }
    }
}

impl Checked for Refusal {
    fn check(&self) -> RuleResult {
        let named = |name: &str, rule: RuleResult| rule.map_err(|error| error.within(name));
        match self {
            Refusal::Malformed { detail }
            | Refusal::BadProfile { detail }
            | Refusal::Crowded { detail, seconds: _ } => named("detail", text(SENTENCE)(detail)),
            Refusal::Unexpected { message, detail } | Refusal::NotInPlan { message, detail } => {
                named("message", text(LABEL)(message))?;
                named("detail", text(SENTENCE)(detail))
            }
            Refusal::Version { theirs: _, ours: _ }
            | Refusal::Oversized { bytes: _, limit: _ }
            | Refusal::Full { workers: _ }
            | Refusal::RunOver
            | Refusal::Removed
            | Refusal::LeaseEnded { seconds: _ } => Ok(()),
        }
    }
}
