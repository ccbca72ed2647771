//! Why the coordinator turns a frame or a worker away. A person reads the words, a program the variant.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    checked::{Checked, RuleResult, text},
    limits::{LABEL, SENTENCE},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error(
        "this worker speaks protocol version {theirs}, the coordinator speaks {ours}: reload the page, or update the program, so that both are of one build"
    )]
    Version { theirs: u8, ours: u8 },
    #[error("the frame could not be read: {detail}")]
    Malformed { detail: String },
    #[error("the frame is {bytes} bytes long, at most {limit} are allowed")]
    Oversized { bytes: u64, limit: u64 },
    #[error("{message} was not expected now: {detail}")]
    Unexpected { message: String, detail: String },
    #[error("{message} does not fit the plan: {detail}")]
    NotInPlan { message: String, detail: String },
    #[error("the profile cannot be used: {detail}")]
    BadProfile { detail: String },
    #[error("the run is full: {workers} workers are connected")]
    Full { workers: u32 },
    #[error("the run is over")]
    RunOver,
    #[error("the organizer removed this worker")]
    Removed,
    #[error("nothing was heard from this worker for {seconds} s")]
    LeaseEnded { seconds: u32 },
}

impl Refusal {
    /// What kind of refusal it is, for counters.
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
        }
    }

    /// How long to wait before connecting again; None: trying again is of no use.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            // Somebody may leave.
            Refusal::Full { .. } => Some(Duration::from_secs(30)),
            // The device slept, or its network was gone, and it is back.
            Refusal::LeaseEnded { .. } => Some(Duration::ZERO),
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
            Refusal::Malformed { detail } | Refusal::BadProfile { detail } => {
                named("detail", text(SENTENCE)(detail))
            }
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
