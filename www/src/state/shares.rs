//! Where the time of a step or of a round went.

use protocol::message::Timings;

/// A kind of work that takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    Forward,
    Backward,
    Optimizer,
    /// All computing: block mode does not tell its kinds apart.
    Computing,
    Send,
    Receive,
    Wait,
}

impl Share {
    /// Key in the style sheet.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Share::Forward | Share::Computing => "forward",
            Share::Backward => "backward",
            Share::Optimizer => "optimizer",
            Share::Send => "send",
            Share::Receive => "receive",
            Share::Wait => "wait",
        }
    }

    /// Seconds of it.
    pub(crate) fn seconds(self, timings: &Timings) -> f64 {
        match self {
            Share::Forward => timings.forward,
            Share::Backward => timings.backward,
            Share::Optimizer => timings.optimizer,
            Share::Computing => timings.busy(),
            Share::Send => timings.send,
            Share::Receive => timings.receive,
            Share::Wait => timings.wait,
        }
    }
}

/// What a bar is divided into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Span {
    /// A step of pipeline mode.
    #[default]
    Step,
    /// A round of block mode.
    Round,
}

impl Span {
    /// Its parts, in the order in which they are drawn.
    pub(crate) fn shares(self) -> &'static [Share] {
        use Share::{Backward, Computing, Forward, Optimizer, Receive, Send, Wait};
        match self {
            Span::Step => &[Forward, Backward, Optimizer, Send, Receive, Wait],
            Span::Round => &[Computing, Receive, Send, Wait],
        }
    }
}

/// Seconds of the whole step or round.
pub(crate) fn total(timings: &Timings) -> f64 {
    timings.busy() + timings.send + timings.receive + timings.wait
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_up_the_whole() {
        let waits = Timings { send: 0.25, receive: 0.125, wait: 4.0, ..Timings::default() };
        let step = Timings { forward: 1.0, backward: 2.0, optimizer: 0.5, ..waits };
        let round = Timings { local_steps: 3.0, optimizer: 0.5, ..waits };
        for (span, timings) in [(Span::Step, step), (Span::Round, round)] {
            let sum: f64 = span.shares().iter().map(|share| share.seconds(&timings)).sum();
            assert_eq!(sum, total(&timings), "{span:?}");
        }
    }
}
