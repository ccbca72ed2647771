//! How long a round may take.

use serde::Serialize;

/// Where a deadline comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlinePolicy {
    /// Always the same, in seconds; whoever is later is too late.
    Fixed {
        /// Seconds from the opening of the round.
        seconds: f64,
    },
    /// Learned from arrivals.
    Adaptive {
        /// Share of the replicas that a deadline should let arrive.
        target: f64,
        /// A round with a smaller share goes on past its deadline, for up to [`PATIENCE`] times as long ...
        floor: f64,
        /// ... and no longer than this in all, in seconds.
        longest: f64,
    },
}

/// How many deadlines a round below its floor may take: who is not there by then is not coming.
const PATIENCE: f64 = 4.0;
/// Factor from the arrivals expected to the deadline, at first.
const SLACK: f64 = 1.5;
/// Seconds on top: where rounds are short, a hiccup of the machine is as long as a round.
const GRACE: f64 = 0.5;
/// Least factor: arrivals scatter.
const LEAST_SLACK: f64 = 1.2;
/// Largest factor.
const MOST_SLACK: f64 = 8.0;
/// A round short of its target has the factor raised by this much, ...
const RAISE: f64 = 1.3;
/// ... one that reaches it well in time lowered by this much.
const LOWER: f64 = 0.93;
/// Weight of the newest round in the participation that is held against the target.
const NEWEST: f64 = 0.2;

/// The policy, and what it has learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Deadlines {
    policy: DeadlinePolicy,
    slack: f64,
    /// Participation of late: one missing worker in a small round is no reason to let all wait longer.
    participation: f64,
}

impl Deadlines {
    /// A policy that has learned nothing yet.
    pub fn new(policy: DeadlinePolicy) -> Self {
        let participation = match policy {
            DeadlinePolicy::Adaptive { target, .. } => target,
            DeadlinePolicy::Fixed { .. } => 1.0,
        };
        Self { policy, slack: SLACK, participation }
    }

    /// Seconds for a round whose replicas are expected after so many seconds each.
    pub fn seconds(&self, expected: &[f64]) -> f64 {
        match self.policy {
            DeadlinePolicy::Fixed { seconds } => seconds,
            DeadlinePolicy::Adaptive { target, longest, .. } => {
                let mut expected = expected.to_vec();
                expected.sort_by(f64::total_cmp);
                let wanted = (target * expected.len() as f64).ceil() as usize;
                let slowest = expected.get(wanted.max(1) - 1).copied().unwrap_or(longest);
                (slowest * self.slack + GRACE).min(longest)
            }
        }
    }

    /// Whether a round may close so long after it opened, with this many of its replicas in.
    pub fn may_close(&self, elapsed: f64, deadline: f64, arrived: usize, assigned: usize) -> bool {
        if elapsed < deadline {
            return false;
        }
        match self.policy {
            DeadlinePolicy::Fixed { .. } => true,
            DeadlinePolicy::Adaptive { floor, longest, .. } => {
                let end = longest.min(PATIENCE * deadline);
                elapsed >= end || arrived as f64 >= floor * assigned as f64
            }
        }
    }

    /// When to look again whether a round may close, in seconds since it opened.
    pub fn next_look(&self, elapsed: f64, deadline: f64) -> f64 {
        match self.policy {
            DeadlinePolicy::Adaptive { longest, .. } if elapsed >= deadline => {
                longest.min(PATIENCE * deadline)
            }
            _ => deadline,
        }
    }

    /// Learns from a round: the share of its replicas that came in time, and after which share of the deadline the
    /// last of them did.
    pub fn learn(&mut self, participation: f64, last_arrival: f64) {
        let DeadlinePolicy::Adaptive { target, .. } = self.policy else { return };
        self.participation += NEWEST * (participation - self.participation);
        if participation < target && self.participation < target {
            self.slack = (self.slack * RAISE).min(MOST_SLACK);
        } else if last_arrival < 0.8 {
            self.slack = (self.slack * LOWER).max(LEAST_SLACK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTIVE: DeadlinePolicy = DeadlinePolicy::Adaptive { target: 0.86, floor: 0.6, longest: 100.0 };

    #[test]
    fn the_deadline_lets_the_target_arrive_and_not_the_straggler() {
        let deadlines = Deadlines::new(ADAPTIVE);
        let mut expected = vec![1.0; 7];
        expected.push(50.0);
        assert_eq!(deadlines.seconds(&expected), 1.5 + GRACE);
        // Of three, 0.86 is all.
        assert_eq!(deadlines.seconds(&[1.0, 2.0, 3.0]), 4.5 + GRACE);
        assert_eq!(deadlines.seconds(&[1e9]), 100.0);
    }

    #[test]
    fn a_round_below_the_floor_goes_on_but_not_for_ever() {
        let deadlines = Deadlines::new(ADAPTIVE);
        assert!(!deadlines.may_close(4.9, 5.0, 10, 10));
        assert!(deadlines.may_close(5.0, 5.0, 6, 10));
        assert!(!deadlines.may_close(5.0, 5.0, 5, 10));
        assert_eq!(deadlines.next_look(5.0, 5.0), 20.0);
        assert!(deadlines.may_close(20.0, 5.0, 0, 10));
        assert!(!deadlines.may_close(99.0, 50.0, 5, 10));
        assert!(deadlines.may_close(100.0, 50.0, 0, 10), "nor longer than the longest");
        assert!(Deadlines::new(DeadlinePolicy::Fixed { seconds: 5.0 }).may_close(5.0, 5.0, 0, 10));
    }

    #[test]
    fn misses_lengthen_and_idle_waits_shorten_it() {
        let mut deadlines = Deadlines::new(ADAPTIVE);
        let before = deadlines.seconds(&[1.0]);
        deadlines.learn(0.5, 1.0);
        assert!(deadlines.seconds(&[1.0]) > before);
        for _ in 0..100 {
            deadlines.learn(1.0, 0.3);
        }
        assert_eq!(deadlines.seconds(&[1.0]), LEAST_SLACK + GRACE);
        for _ in 0..100 {
            deadlines.learn(0.0, 1.0);
        }
        assert_eq!(deadlines.seconds(&[1.0]), MOST_SLACK + GRACE);
    }
}
