//! What this tab's device is doing, in words.

use super::{Tone, Words, bounded, mode::ModeText, numbers::about, say, sentence};
use crate::state::{
    activity::{Activity, Status},
    session::Session,
};

/// What the device is doing and what that means.
pub(crate) fn words(activity: &Activity, mode: &dyn ModeText) -> Words {
    use Tone::{Bad, Busy, Calm, Good, Warn};
    match activity {
        Activity::Idle => {
            say(Calm, "Not taking part", "Nothing runs on this device until you press the button.")
        }
        Activity::Rejoining { in_seconds } => say(
            Busy,
            "Joining again",
            format!(
                "This device took part when the page was left. It joins again in {}.",
                about(in_seconds.ceil())
            ),
        ),
        Activity::Starting { slow: false } => say(
            Busy,
            "Loading the training program",
            "A few megabytes, once. It runs inside this tab and nothing is installed.",
        ),
        Activity::Starting { slow: true } => say(
            Busy,
            "Loading the training program",
            "This takes longer than usual. The network may be slow, or other tabs of this browser may be using it.",
        ),
        Activity::Connecting { slow: false } => {
            say(Busy, "Connecting", "Opening a connection to the coordinator.")
        }
        Activity::Connecting { slow: true } => say(
            Busy,
            "Connecting",
            "The coordinator has not answered yet. The network may be slow, or it may block WebSocket connections.",
        ),
        Activity::InRun(status) => mode.status(*status),
        Activity::Reconnecting { in_seconds, reason, coordinator_silent } => {
            let next = match in_seconds.ceil() {
                seconds if seconds >= 1.0 => format!("Next try in {}.", about(seconds)),
                _ => "Trying now.".to_owned(),
            };
            let meaning = if *coordinator_silent {
                "The coordinator does not answer this page either: it may have stopped, or this device may have no \
                 network."
            } else {
                "The coordinator answers this page, so the run goes on without this device until it is back."
            };
            say(
                Warn,
                "Connection lost, trying again",
                format!("{} {meaning} {next}", sentence(&bounded(reason))),
            )
        }
        Activity::Stopping => say(Busy, "Stopping", "Telling the coordinator that this device leaves."),
        Activity::Left => say(
            Calm,
            "Stopped",
            "This device has left the run. Its accepted work counts. You can join again.",
        ),
        Activity::Over { finished: true, took_part: true } => say(
            Good,
            "The run is finished",
            "The last step is done. Thank you: this device has trained a part of the model.",
        ),
        Activity::Over { finished: false, took_part: true } => {
            say(Calm, "The run was stopped", "The organizer ended it. Thank you for taking part.")
        }
        Activity::Over { finished: true, took_part: false } => say(
            Calm,
            "This run is finished",
            "The last step is done, so it takes no more devices. The results are below.",
        ),
        Activity::Over { finished: false, took_part: false } => say(
            Calm,
            "This run was stopped",
            "The organizer ended it, so it takes no more devices. The results so far are below.",
        ),
        Activity::Refused(words) => {
            say(Bad, "The coordinator refused this device", format!("The reason: {}", sentence(words)))
        }
        Activity::Failed(words) => say(Bad, "This device cannot go on", sentence(words)),
        Activity::Crashed(_) => say(
            Bad,
            "The training program crashed",
            "It starts again by itself in a moment. After three crashes in a row it waits for the button. The run goes \
             on without this device meanwhile.",
        ),
        Activity::Unloadable => say(
            Bad,
            "The training program could not be loaded",
            "Check the network and try again. If that does not help, reload the page: the coordinator may have \
             been updated.",
        ),
    }
}

/// What a screen reader announces: without what counts down.
pub(crate) fn announcement(activity: &Activity, words: &Words) -> String {
    match activity {
        Activity::Rejoining { .. } | Activity::Reconnecting { .. } => format!("{}.", words.title),
        _ => format!("{}. {}", words.title, words.detail),
    }
}

/// The tab's title, so that a tab in the background still tells how it fares.
pub(crate) fn tab_title(activity: &Activity, session: &Session, mode: &dyn ModeText) -> String {
    let state = words(activity, mode).title;
    match mode.own_progress(session) {
        _ if *activity == Activity::Idle => "Cohort: help train a language model".to_owned(),
        Some(progress) if shows_progress(activity) => format!("{state} · {progress} · Cohort"),
        _ => format!("{state} · Cohort"),
    }
}

fn shows_progress(activity: &Activity) -> bool {
    matches!(
        activity,
        Activity::InRun(
            Status::Training | Status::Evaluating | Status::Ready | Status::Paused | Status::Loading
        )
    )
}

/// The button that begins.
pub(crate) fn button(activity: &Activity) -> &'static str {
    match activity {
        Activity::Crashed(_) => "Restart",
        Activity::Refused(_) | Activity::Failed(_) | Activity::Unloadable => "Try again",
        Activity::Left => "Join again",
        Activity::Rejoining { .. } => "Join now",
        _ => "Join",
    }
}

#[cfg(test)]
mod tests {
    use protocol::{tab::SessionEvent, view::Phase};

    use super::*;
    use crate::state::{activity::of_session, link::Link, mode::Mode};

    /// A device that trains a block.
    fn at_a_block() -> Session {
        let mut session = Session::default().starting(0.0);
        let step = SessionEvent::LocalStep { round: 11, block: 1, step: 1, steps: 10, cross_entropy: 3.0 };
        session.apply(step, 0.0);
        session
    }

    #[test]
    fn the_title_and_the_card_agree_in_every_phase() {
        let session = at_a_block();
        let title = |phase, link| {
            let activity = of_session(&session, Some(phase), link, 100.0);
            let mode = Mode::Block.text();
            (words(&activity, mode).title, tab_title(&activity, &session, mode))
        };
        let cases = [
            (Phase::Training, Link::Live, "Training", "Training · round 12 · Cohort"),
            (Phase::Paused, Link::Live, "Paused", "Paused · round 12 · Cohort"),
            (Phase::Waiting, Link::Live, "Waiting for the run", "Waiting for the run · Cohort"),
            (Phase::Training, Link::Silent, "No answer", "No answer · Cohort"),
            (Phase::Finished, Link::Live, "Run finished", "Run finished · Cohort"),
        ];
        for (phase, link, card, tab) in cases {
            assert_eq!(title(phase, link), (card.to_owned(), tab.to_owned()), "{phase:?}");
        }
    }

    #[test]
    fn a_lost_connection_is_told_as_it_is() {
        let lost = |coordinator_silent, in_seconds| {
            let reason = "the connection was closed".to_owned();
            let activity = Activity::Reconnecting { in_seconds, reason, coordinator_silent };
            words(&activity, Mode::Pipeline.text()).detail
        };
        assert!(!lost(true, 7.2).contains("goes on"), "{}", lost(true, 7.2));
        assert!(lost(true, 7.2).contains("Next try in 8 s."));
        assert!(lost(false, 0.2).contains("Next try in 1 s."));
        assert!(lost(false, 0.0).contains("run goes on") && lost(false, 0.0).contains("Trying now."));
    }

    #[test]
    fn what_counts_down_is_not_announced() {
        let at = |in_seconds| {
            let reason = "gone".to_owned();
            let activity = Activity::Reconnecting { in_seconds, reason, coordinator_silent: false };
            announcement(&activity, &words(&activity, Mode::Block.text()))
        };
        assert_eq!(at(8.0), at(3.0));
    }
}
