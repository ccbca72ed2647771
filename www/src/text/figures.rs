//! Names of the numbers on the pages, and of the kinds of work that take time.

use protocol::message::Timings;

use super::numbers::seconds;
use crate::state::shares::{Share, Span, total};

/// A kind of work.
pub(crate) fn share(share: Share) -> &'static str {
    match share {
        Share::Forward => "Forward",
        Share::Backward => "Backward",
        Share::Optimizer => "Update",
        Share::Computing => "Computing",
        Share::Send => "Sending",
        Share::Receive => "Receiving",
        Share::Wait => "Waiting",
    }
}

/// Reads a bar of times out.
pub(crate) fn bar_label(span: Span, timings: &Timings) -> String {
    let part = |of: &Share| format!("{} {}", share(*of).to_lowercase(), seconds(of.seconds(timings)));
    let parts: Vec<String> = span.shares().iter().map(part).collect();
    format!("Last {}, {}: {}", span_name(span), seconds(total(timings)), parts.join(", "))
}

/// What a table of times is about.
pub(crate) fn table_caption(span: Span) -> String {
    format!("Time of the last {} by kind of work", span_name(span))
}

/// The row of the sum.
pub(crate) fn whole(span: Span) -> String {
    format!("Whole {}", span_name(span))
}

fn span_name(span: Span) -> &'static str {
    match span {
        Span::Step => "step",
        Span::Round => "round",
    }
}

pub(crate) const PROGRESS: &str = "Progress of the run";
pub(crate) const STEP: &str = "Step";
pub(crate) const ROUND: &str = "Round";
pub(crate) const TRAINING_LOSS: &str = "Training loss";
pub(crate) const VALIDATION_LOSS: &str = "Validation loss";
pub(crate) const NATS: &str = "nats per token";
pub(crate) const HELD_OUT: &str = "on held-out text";
pub(crate) const SPEED: &str = "Speed";
pub(crate) const TOKENS_PER_SECOND: &str = "tokens per second";
pub(crate) const FROM_NOISE: &str = "Cross-entropy from noise";
pub(crate) const LOCAL: &str = "Local cross-entropy";
pub(crate) const LOCAL_NOTE: &str = "in training; leaky: it sees the answer through the noise";
pub(crate) const PARTICIPATION: &str = "Participation";
pub(crate) const ROUND_TIME: &str = "Time of a round";
pub(crate) const ACCEPTED_DELTAS: &str = "Deltas accepted";
pub(crate) const DEVICES: &str = "Devices at work";
pub(crate) const SENT_TO_DEVICES: &str = "Sent to devices";
pub(crate) const SENT_BACK: &str = "Received from devices";
pub(crate) const FOR_ACCEPTED: &str = "for accepted deltas";
pub(crate) const SNAPSHOT: &str = "Last snapshot";

/// The note of the cross-entropy from noise.
pub(crate) fn nats_and(when: &str) -> String {
    format!("nats per token, one draw, {when}")
}
