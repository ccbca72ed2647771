//! How often a live region may speak.

/// Seconds between two announcements. A screen reader that speaks at every round cannot be worked with.
pub(crate) const EVERY: f64 = 30.0;

/// Lets the newest text through, and that not too often.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Announcer {
    said: String,
    at: Option<f64>,
}

impl Announcer {
    /// The text to announce at `now`, in seconds: the current one if it is new and the last one is old enough.
    pub(crate) fn offer(&mut self, text: &str, now: f64) -> Option<String> {
        let early = self.at.is_some_and(|at| now - at < EVERY);
        if early || text.is_empty() || text == self.said {
            return None;
        }
        (self.said, self.at) = (text.to_owned(), Some(now));
        Some(self.said.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_every_half_minute_and_then_the_newest() {
        let mut announcer = Announcer::default();
        assert_eq!(announcer.offer("", 0.0), None);
        assert_eq!(announcer.offer("round 1", 0.0).as_deref(), Some("round 1"));
        assert_eq!(announcer.offer("round 2", 10.0), None);
        assert_eq!(announcer.offer("round 3", 29.0), None);
        assert_eq!(announcer.offer("round 3", 30.0).as_deref(), Some("round 3"));
        assert_eq!(announcer.offer("round 3", 100.0), None, "nothing new");
        assert_eq!(announcer.offer("round 4", 100.0).as_deref(), Some("round 4"));
    }
}
