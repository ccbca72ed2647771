//! The cards of the volunteer's page in words.

use protocol::view::ReplicaView;

use super::numbers::{count, plural};
use crate::state::{mode::Mode, session::Work};

/// Micro-batches of the steps with this device.
pub(crate) fn micro_batches(work: &Work) -> String {
    format!("in {}", plural(work.micro_batches, "micro-batch", "micro-batches"))
}

/// Rounds that ended without this device's delta.
pub(crate) fn missed(replica: &ReplicaView) -> String {
    format!("and {} too late or not sent", count(replica.missed))
}

// The card with the button.
pub(crate) const NAME: &str = "Name, shown to the organizer and to others";
pub(crate) const CANCEL: &str = "Cancel";
pub(crate) const STOP: &str = "Stop";
pub(crate) const ROUND_PROGRESS: &str = "Progress of the round on this device";
pub(crate) const LEAVE: &str = "You can leave at any time. Closing the tab is enough.";

// The curve.
/// The card that says what the run does.
pub(crate) fn curve_title(mode: Option<Mode>) -> &'static str {
    match mode {
        Some(Mode::Serve) => "What the model does",
        _ => "How the model is doing",
    }
}

// The part of the model.
pub(crate) const PART: &str = "Your part of the model";
pub(crate) const PART_DETAIL: &str = "The embedding turns tokens into vectors, the layers transform them one after the \
    other, and the head turns the result into a prediction of the next token.";
pub(crate) const BLOCK: &str = "Your block of the model";
pub(crate) const BLOCK_DETAIL: &str = "Your device trains this block without waiting for any other. When the model \
    writes, the blocks take turns, from pure noise on the left to a prediction of the next token on the right.";

// Work.
pub(crate) const WORK: &str = "Your work";
pub(crate) const ACCEPTED: &str = "Accepted";
pub(crate) const ACCEPTED_NOTE: &str = "micro-batches, counted by the coordinator";
pub(crate) const ROUNDS_ACCEPTED: &str = "Deltas accepted";
pub(crate) const ROUNDS_ACCEPTED_NOTE: &str = "counted by the coordinator";
pub(crate) const REFUSED: &str = "Refused";
pub(crate) const LAST_ROUND: &str = "Last round";
pub(crate) const LAST_ROUND_NOTE: &str = "from its start to your delta";
pub(crate) const MY_STEPS: &str = "Steps with you";
pub(crate) const NO_STEPS: &str = "none yet";
pub(crate) const SENT: &str = "Sent";
pub(crate) const RECEIVED: &str = "Received";
pub(crate) const SINCE_JOINED: &str = "since you joined";
pub(crate) const ROUND_TRIP: &str = "Round trip";
pub(crate) const ROUND_TRIP_NOTE: &str = "to the coordinator and back";
pub(crate) const STEP_TIME: &str = "Where the time of your last step went";
pub(crate) const ROUND_TIME: &str = "Where the time of your last round went";
pub(crate) const STEP_TIME_DETAIL: &str = "Forward: computing predictions. Backward: computing gradients. Update: changing \
    the weights. Sending: handing the results to the network. Receiving: unpacking what came. Waiting: for the other \
    devices, which is normal.";
pub(crate) const ROUND_TIME_DETAIL: &str = "Computing: the local steps, in each of which the block learns from some text. \
    Receiving: the block's current weights. Sending: your delta.";

// What leaves the device.
pub(crate) const PRIVACY: &str = "What leaves your device";
pub(crate) const ABOUT_DEVICE: &str =
    "The name you gave, the kind of processor or graphics chip, and how fast and how large it is.";
pub(crate) const NO_FILES: &str =
    "No files, no pictures, no text of yours. The page asks for none and has no access to them.";

// While it runs.
pub(crate) const STAYING: &str = "While it runs";
pub(crate) const KEEP_SCREEN_ON: &str = "Keep the screen on";
pub(crate) const KEEP_IN_FRONT: &str = "Keep this tab in front. Browsers slow down tabs in the background, and freeze busy ones after a few minutes.";
pub(crate) const PHONE: &str = "A phone stops the tab seconds after you leave it or lock the screen.";
pub(crate) const POWER: &str = "Computing uses power. Plug in a laptop or a phone if it is to run for long.";
