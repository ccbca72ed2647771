//! What is shown, worked out from the run's view, this device's session and the link. Pure: no browser, no words.

pub(crate) mod activity;
pub(crate) mod announce;
pub(crate) mod curve;
pub(crate) mod facts;
pub(crate) mod link;
pub(crate) mod mode;
pub(crate) mod places;
pub(crate) mod scores;
pub(crate) mod session;
pub(crate) mod shares;
pub(crate) mod sse;
pub(crate) mod tally;
pub(crate) mod user_agent;
pub(crate) mod writing;

#[cfg(test)]
pub(crate) mod fixtures;
