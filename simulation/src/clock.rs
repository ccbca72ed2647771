//! The virtual clock: what is due at which time, in order.

use std::{collections::BTreeMap, time::Duration};

/// Longest time that anything waits for: sums of a few of them do not overflow.
const LONGEST: Duration = Duration::from_secs(1 << 40);

/// Names something in a [`Queue`], so that it can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    time: Duration,
    number: u64,
}

/// The virtual time, and what is due at later ones. What is due at one time happens in the order in which it was put
/// in.
#[derive(Debug)]
pub struct Queue<T> {
    now: Duration,
    number: u64,
    due: BTreeMap<Ticket, T>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { now: Duration::ZERO, number: 0, due: BTreeMap::new() }
    }
}

/// Seconds as the clock counts them: whole nanoseconds, nothing for a time that is negative or no number.
pub fn seconds(seconds: f64) -> Duration {
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
}

impl<T> Queue<T> {
    /// The time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Has something happen at a time; at once, where that has passed.
    pub fn at(&mut self, time: Duration, what: T) -> Ticket {
        self.number += 1;
        let ticket = Ticket { time: time.max(self.now), number: self.number };
        self.due.insert(ticket, what);
        ticket
    }

    /// Takes something back that has not happened.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        self.due.remove(&ticket)
    }

    /// Something that has not happened, to be changed.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.due.get_mut(&ticket)
    }

    /// When the next thing happens.
    pub fn next(&self) -> Option<Duration> {
        self.due.first_key_value().map(|(ticket, _)| ticket.time)
    }

    /// Lets time pass to the next thing that happens.
    pub fn pop(&mut self) -> Option<T> {
        let (ticket, what) = self.due.pop_first()?;
        self.now = ticket.time;
        Some(what)
    }

    /// Lets time pass up to `time`; not beyond what is due, nor backwards.
    pub fn advance(&mut self, time: Duration) {
        let limit = self.next().unwrap_or(time);
        self.now = time.min(limit).max(self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_happen_in_the_order_of_their_time_and_then_in_which_they_were_put_in() {
        let mut queue = Queue::default();
        queue.at(seconds(2.0), "c");
        queue.at(seconds(1.0), "a");
        let gone = queue.at(seconds(1.5), "taken back");
        queue.at(seconds(1.0), "b");
        assert_eq!(queue.cancel(gone), Some("taken back"));
        assert_eq!(queue.pop(), Some("a"));
        assert_eq!(queue.now(), seconds(1.0));
        queue.at(Duration::ZERO, "at once");
        queue.advance(seconds(9.0));
        assert_eq!(queue.now(), seconds(1.0), "nothing is passed over");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, ["b", "at once", "c"]);
    }

    #[test]
    fn times_that_make_no_sense_are_bounded() {
        assert_eq!([f64::NAN, -1.0, 0.0].map(seconds), [Duration::ZERO; 3]);
        assert_eq!([f64::INFINITY, 1e300].map(seconds), [LONGEST; 2]);
        assert_eq!(seconds(1.25), Duration::from_millis(1250));
    }
}
