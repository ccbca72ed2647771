//! How fast the way to the coordinator is, by timed frames.
//!
//! Pure: says what to send, and takes answers with their time.

use protocol::{
    limits::{LINK_RATE, PROBE},
    message::{LinkSpeed, Probe},
};

/// Empty frames there and back; the fastest counts, others had to queue.
const ROUND_TRIPS: u32 = 3;
/// Bytes of the first frame that is timed for its length.
const FIRST: u32 = 64 << 10;
/// Each further one is this much longer.
const GROWTH: u32 = 4;
/// A frame that takes this many seconds beyond the round trip tells enough.
const LONG_ENOUGH: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    RoundTrip { left: u32 },
    Up { bytes: u32 },
    Down { bytes: u32 },
    Done,
}

/// A measurement in progress.
#[derive(Debug, Clone)]
pub struct LinkProbe {
    phase: Phase,
    number: u32,
    sent_at: f64,
    round_trip: f64,
    up: f64,
    down: f64,
}

impl LinkProbe {
    /// A measurement that has not begun.
    pub fn begin() -> Self {
        Self {
            phase: Phase::RoundTrip { left: ROUND_TRIPS },
            number: 0,
            sent_at: 0.0,
            round_trip: f64::INFINITY,
            up: 0.0,
            down: 0.0,
        }
    }

    /// The probe to send at `now`, in seconds; None when the measurement is done.
    pub fn next(&mut self, now: f64) -> Option<Probe> {
        self.number += 1;
        self.sent_at = now;
        let (padding, answer) = match self.phase {
            Phase::RoundTrip { .. } => (0, 0),
            Phase::Up { bytes } => (bytes, 0),
            Phase::Down { bytes } => (0, bytes),
            Phase::Done => return None,
        };
        Some(Probe { number: self.number, padding, answer })
    }

    /// The answer came at `now`. False for one that was not waited for.
    pub fn answered(&mut self, number: u32, now: f64) -> bool {
        if number != self.number {
            return false;
        }
        let seconds = now - self.sent_at;
        // A coarse clock may see no time pass.
        let beyond = (seconds - self.round_trip).max(1e-6);
        let longer = |bytes: u32| {
            let next = bytes.saturating_mul(GROWTH);
            (beyond < LONG_ENOUGH && next as usize <= PROBE).then_some(next)
        };
        self.phase = match self.phase {
            Phase::RoundTrip { left } => {
                self.round_trip = self.round_trip.min(seconds.max(0.0));
                if left > 1 { Phase::RoundTrip { left: left - 1 } } else { Phase::Up { bytes: FIRST } }
            }
            Phase::Up { bytes } => {
                self.up = f64::from(bytes) / beyond;
                longer(bytes).map_or(Phase::Down { bytes: FIRST }, |bytes| Phase::Up { bytes })
            }
            Phase::Down { bytes } => {
                self.down = f64::from(bytes) / beyond;
                longer(bytes).map_or(Phase::Done, |bytes| Phase::Down { bytes })
            }
            Phase::Done => Phase::Done,
        };
        true
    }

    /// The result, once [`LinkProbe::next`] gives no more.
    pub fn result(&self) -> LinkSpeed {
        let possible = |bytes_per_second: f64| bytes_per_second.clamp(1.0, LINK_RATE);
        LinkSpeed { round_trip_seconds: self.round_trip, up: possible(self.up), down: possible(self.down) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a link of these properties; gives the result and the seconds it took.
    fn play(round_trip: f64, up: f64, down: f64) -> (LinkSpeed, f64) {
        let mut probe = LinkProbe::begin();
        let mut now = 100.0;
        while let Some(Probe { number, padding, answer }) = probe.next(now) {
            assert!(!probe.answered(number + 1, now), "another number");
            now += round_trip + f64::from(padding) / up + f64::from(answer) / down;
            assert!(probe.answered(number, now));
        }
        (probe.result(), now - 100.0)
    }

    #[test]
    fn a_clock_that_sees_no_time_pass_gives_a_speed_that_can_be_told() {
        let mut probe = LinkProbe::begin();
        while let Some(ask) = probe.next(1.0) {
            probe.answered(ask.number, 1.0);
        }
        protocol::checked::Checked::check(&probe.result()).unwrap();
    }

    #[test]
    fn slow_and_fast_links_are_measured_in_little_time() {
        // 50 and 10 Mbit/s at 60 ms, a LAN, a slow phone.
        for (round_trip, up, down) in [(0.06, 1.25e6, 6.25e6), (0.0005, 1e9, 1e9), (0.3, 6e4, 2e5)] {
            let (link, seconds) = play(round_trip, up, down);
            assert!((link.round_trip_seconds - round_trip).abs() < 1e-6);
            assert!((link.up / up - 1.0).abs() < 0.02, "{} for {up}", link.up);
            assert!((link.down / down - 1.0).abs() < 0.02, "{} for {down}", link.down);
            assert!(seconds < 4.0, "{seconds} s");
        }
    }
}
