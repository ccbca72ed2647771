//! Whether the page still hears from the coordinator. Times are in seconds, from any fixed moment on.
//!
//! The event stream may be silent because nothing changes, because something between here and the coordinator holds
//! it back, or because the connection is dead without a close. So silence leads to a question first, and counts as
//! lost only when that is not answered either.

/// Silence after which the coordinator is asked, in seconds.
const ASK_AFTER: f64 = 2.5;

/// Silence after which what the page shows counts as old, in seconds. The question has this minus [`ASK_AFTER`].
pub(crate) const SILENT_AFTER: f64 = 5.0;

/// How the page hears from the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// Nothing has been heard yet, and it is too early to say more.
    Opening,
    /// What is shown is current.
    Live,
    /// What is shown is old.
    Silent,
}

impl Link {
    /// Name for style sheets and tests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Link::Opening => "opening",
            Link::Live => "live",
            Link::Silent => "silent",
        }
    }
}

/// Watches for silence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Monitor {
    /// When something was heard last, or else when listening began.
    last: f64,
    has_heard: bool,
    asking: bool,
    /// A hidden page listens to nothing, and knows nothing.
    hidden: bool,
}

impl Monitor {
    /// Listening begins.
    pub(crate) fn new(now: f64) -> Self {
        Self { last: now, has_heard: false, asking: false, hidden: false }
    }

    /// Something came from the coordinator.
    pub(crate) fn heard(&mut self, now: f64) {
        (self.last, self.has_heard, self.asking) = (now, true, false);
    }

    /// The page was hidden.
    pub(crate) fn hide(&mut self) {
        self.hidden = true;
    }

    /// The page is in sight again, and listening begins anew.
    pub(crate) fn show(&mut self, now: f64) {
        (self.last, self.hidden, self.asking) = (now, false, false);
    }

    /// Whether to ask the coordinator now. Each question is answered by [`heard`](Self::heard) or by
    /// [`unanswered`](Self::unanswered), before there is another.
    pub(crate) fn ask(&mut self, now: f64) -> bool {
        let due = !self.hidden && !self.asking && now - self.last >= ASK_AFTER;
        self.asking |= due;
        due
    }

    /// The question failed.
    pub(crate) fn unanswered(&mut self) {
        self.asking = false;
    }

    /// Seconds of silence.
    pub(crate) fn silence(&self, now: f64) -> f64 {
        (now - self.last).max(0.0)
    }

    /// The link as it is now.
    pub(crate) fn link(&self, now: f64) -> Link {
        match self.has_heard {
            _ if !self.hidden && self.silence(now) > SILENT_AFTER => Link::Silent,
            true => Link::Live,
            false => Link::Opening,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_asked_about_and_then_shown() {
        let mut monitor = Monitor::new(100.0);
        assert_eq!(monitor.link(104.0), Link::Opening);
        assert_eq!(monitor.link(106.0), Link::Silent);
        monitor.heard(106.0);
        assert_eq!(monitor.link(107.0), Link::Live);
        assert!(!monitor.ask(108.0));
        assert!(monitor.ask(108.5));
        assert!(!monitor.ask(109.0), "one question at a time");
        monitor.unanswered();
        assert!(monitor.ask(110.0));
        assert_eq!(monitor.link(111.5), Link::Silent);
        monitor.heard(112.0);
        assert_eq!((monitor.link(112.0), monitor.silence(113.0)), (Link::Live, 1.0));
    }

    #[test]
    fn an_answer_stands_in_for_a_silent_stream() {
        let mut monitor = Monitor::new(0.0);
        for second in 0..60 {
            let now = f64::from(second);
            if monitor.ask(now) {
                monitor.heard(now + 0.5);
            }
            assert_ne!(monitor.link(now + 0.9), Link::Silent, "at {now} s");
        }
    }

    #[test]
    fn a_hidden_page_is_not_called_silent() {
        let mut monitor = Monitor::new(0.0);
        monitor.heard(1.0);
        monitor.hide();
        assert_eq!(monitor.link(1000.0), Link::Live);
        assert!(!monitor.ask(1000.0));
        monitor.show(1000.0);
        assert_eq!(monitor.link(1004.0), Link::Live);
        assert_eq!(monitor.link(1006.0), Link::Silent);
    }
}
