//! The organizer's page in words: orders, questions before what cannot be undone, and invitations.

use protocol::view::{Phase, WorkerView};

use super::{bounded, mode::ModeText};

/// What an organizer can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Start,
    Pause,
    Stop,
    Remove(u64),
    /// Texts for visitors, on or off.
    Serve(bool),
}

/// That the coordinator has the order. What comes of it is the run's phase and its reason.
pub(crate) fn taken(order: Order) -> &'static str {
    match order {
        Order::Start => {
            "The coordinator has the order to start. The line above says what it waits for, if anything."
        }
        Order::Pause => "The coordinator has the order to pause.",
        Order::Stop => "The coordinator has the order to stop.",
        Order::Remove(_) => "The coordinator has the order to remove the device.",
        Order::Serve(true) => "Visitors can ask the model for texts.",
        Order::Serve(false) => "Nobody can ask the model for texts now.",
    }
}

/// Asks before something is done that cannot be undone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Question {
    pub(crate) title: String,
    pub(crate) detail: String,
    /// What the button that does it says.
    pub(crate) yes: String,
    /// What is done then.
    pub(crate) order: Order,
}

/// Before the run is stopped.
pub(crate) fn stop() -> Question {
    Question {
        title: "Stop the run for good?".to_owned(),
        detail:
            "Training ends on all devices, and the run cannot be started again. To interrupt it, use Pause."
                .to_owned(),
        yes: "Stop the run".to_owned(),
        order: Order::Stop,
    }
}

/// Before a device is removed.
pub(crate) fn remove(worker: &WorkerView, mode: &dyn ModeText) -> Question {
    Question {
        title: format!("Remove {}?", bounded(&worker.name)),
        detail: format!("{} Its volunteer can join again.", mode.removal()),
        yes: "Remove".to_owned(),
        order: Order::Remove(worker.id),
    }
}

/// The name of a row's button.
pub(crate) fn remove_label(name: &str) -> String {
    format!("Remove {name}")
}

/// The button that starts or resumes.
pub(crate) fn start(phase: Option<Phase>) -> &'static str {
    if phase == Some(Phase::Paused) { "Resume" } else { "Start" }
}

/// Why somebody sees no buttons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The address has no token.
    NoToken,
    /// The coordinator did not accept it.
    WrongToken,
}

/// What to do to get the buttons.
pub(crate) fn denied(denied: Denied) -> &'static str {
    match denied {
        Denied::NoToken => {
            "This page is read-only: the address has no organizer's token. The coordinator prints the full link when it \
             starts; open that link to get the buttons."
        }
        Denied::WrongToken => {
            "This page is read-only: the coordinator does not accept this organizer's token. Open the newest link that it \
             printed."
        }
    }
}

/// A warning about the address that the invitation would have.
pub(crate) fn address_warning(is_loopback: bool, is_secure: bool, port: &str) -> Option<String> {
    let port = match (port, is_secure) {
        ("", true) => "443",
        ("", false) => "80",
        (port, _) => port,
    };
    if is_loopback {
        Some(format!(
            "This address only works on this computer. For phones and other computers, start the coordinator with \
             --listen 0.0.0.0:{port} and open this page at this computer's address in your network."
        ))
    } else if !is_secure {
        Some(
            "This address is plain http. Browsers then switch WebGPU and the screen lock off, and devices train on their \
             processors. An https address, from a proxy in front of the coordinator, changes that."
                .to_owned(),
        )
    } else {
        None
    }
}

/// What came of copying.
pub(crate) fn copied(done: bool) -> &'static str {
    if done { "Copied." } else { "The browser did not allow that. Select the link and copy it." }
}

pub(crate) const HEADING: &str = "Organizing the run";
pub(crate) const PAUSE: &str = "Pause";
pub(crate) const STOP: &str = "Stop";
pub(crate) const CANCEL: &str = "Cancel";
pub(crate) const CLOSE: &str = "Close";
pub(crate) const INVITE: &str = "Invite devices";
pub(crate) const INVITE_DETAIL: &str = "Whoever opens this link can take part. There is nothing to install.";
pub(crate) const INVITE_LINK: &str = "Invitation link";
pub(crate) const COPY: &str = "Copy";
pub(crate) const QR: &str = "The same link as a QR code";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{
        fixtures::{at_block, worker},
        mode::Mode,
    };

    #[test]
    fn questions_have_the_words_of_their_mode() {
        let block = remove(&at_block(1, "Ada", 0), Mode::Block.text());
        assert_eq!((block.title.as_str(), block.order), ("Remove Ada?", Order::Remove(1)));
        assert!(block.detail.contains("round") && !block.detail.contains("snapshot"));
        let pipeline = remove(&worker(2, &"x".repeat(500)), Mode::Pipeline.text());
        assert!(pipeline.detail.contains("snapshot"));
        assert!(pipeline.title.chars().count() < 80);
    }

    #[test]
    fn the_hint_has_the_port_of_the_page() {
        let hint = |port| address_warning(true, false, port).unwrap_or_default();
        assert!(hint("9000").contains("0.0.0.0:9000"));
        assert!(hint("").contains("0.0.0.0:80 "));
        assert!(address_warning(false, false, "80").is_some_and(|words| words.contains("https")));
        assert_eq!(address_warning(false, true, ""), None);
    }
}
