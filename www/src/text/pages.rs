//! What all pages share in words: the header, the link to the coordinator, addresses that are no page.

use super::numbers::about;
use crate::state::link::Link;

/// That what is on the page is old, when it is.
pub(crate) fn link_lost(link: Link, silence: f64, has_run: bool) -> Option<String> {
    match (link, has_run) {
        (Link::Silent, true) => Some(format!(
            "Nothing has come from the coordinator for {}. This page shows what it last heard and keeps trying.",
            about(silence)
        )),
        (Link::Silent, false) => Some(
            "The coordinator does not answer. It may be starting or it may have stopped; this page keeps trying."
                .to_owned(),
        ),
        _ => None,
    }
}

/// Why something could not be asked of the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// No answer, or none in time.
    Unreachable,
    /// The organizer's token is not accepted.
    Unauthorized,
    /// In the coordinator's words.
    Refused(String),
    /// An answer without words.
    Status(u16),
    /// An answer that this page does not understand.
    Unreadable,
}

/// What went wrong, for a person.
pub(crate) fn error(error: &ApiError) -> String {
    match error {
        ApiError::Unreachable => "The coordinator does not answer.".to_owned(),
        ApiError::Unauthorized => {
            "The coordinator does not accept this organizer's token. Open the newest link that it printed."
                .to_owned()
        }
        ApiError::Refused(words) => super::sentence(words),
        ApiError::Status(status) => format!("The coordinator answered with status {status} and no words."),
        ApiError::Unreadable => UNREADABLE.to_owned(),
    }
}

/// The page and the coordinator do not understand each other.
pub(crate) const UNREADABLE: &str =
    "The coordinator's answer could not be read. Reload the page: it may be of another version.";
pub(crate) const BRAND: &str = "Cohort";
pub(crate) const BRAND_LABEL: &str = "Cohort, start page";
pub(crate) const PAGES: &str = "Pages";
pub(crate) const TAKE_PART: &str = "Take part";
pub(crate) const WATCH: &str = "Watch";
pub(crate) const TRY: &str = "Try it";
pub(crate) const ORGANIZE: &str = "Organize";
pub(crate) const UNNAMED: &str = "…";

pub(crate) const WATCH_HEADING: &str = "Watching the run";
pub(crate) const WATCH_ONLY: &str = "This page is read-only. ";
pub(crate) const WATCH_JOIN: &str = " with this device.";

pub(crate) const RUN: &str = "The run";
pub(crate) const PREDICTIONS: &str = "How well it predicts";
pub(crate) const IN_TIME: &str = "Deltas that came in time";

pub(crate) const NO_PAGE: &str = "There is no such page";
pub(crate) const NO_PAGE_DETAIL: &str = "Check the address. The run itself is at ";
pub(crate) const START_PAGE: &str = "the start page";
