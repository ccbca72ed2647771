//! How long to wait before connecting again: longer each time, and not all workers at once.

/// Pause before the first try to connect again, in seconds; each further one is twice as long.
const FIRST: f64 = 0.5;
/// Longest pause, in seconds.
const LONGEST: f64 = 30.0;
/// A connection that lasted so many seconds was a good one: the next pause is the first again.
const LASTING: f64 = 10.0;

/// Pauses between connections.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: f64,
    seed: u64,
    draws: u64,
}

impl Backoff {
    /// `name` and `now` make the pauses of this worker different from others'.
    pub(crate) fn new(name: &str, now: f64) -> Self {
        let seed = name.bytes().fold(now.to_bits(), |seed, byte| mix(seed ^ u64::from(byte)));
        Self { pause: FIRST, seed, draws: 0 }
    }

    /// Seconds to wait after a connection that lasted for so many, and at least about `after` if the coordinator named
    /// a time: a random share of it from a half to the whole, so that a crowd that was cut off at once comes back
    /// spread out.
    pub(crate) fn next(&mut self, lasted: f64, after: f64) -> f64 {
        if lasted >= LASTING {
            self.pause = FIRST;
        }
        self.draws += 1;
        // The upper 53 bits as a number from 0 to 1.
        let unit = (mix(self.seed ^ mix(self.draws)) >> 11) as f64 / (1u64 << 53) as f64;
        let seconds = self.pause.max(after) * (0.5 + 0.5 * unit);
        self.pause = (self.pause * 2.0).min(LONGEST);
        seconds
    }
}

/// splitmix64 (Steele, Lea and Flood 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_begin_anew_after_a_lasting_connection() {
        let mut backoff = Backoff::new("a", 1.0);
        for full in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            let pause = backoff.next(0.0, 0.0);
            assert!((0.5 * full..=full).contains(&pause), "{pause} of {full}");
        }
        assert!(backoff.next(LASTING, 0.0) <= FIRST);
        assert!((15.0..=30.0).contains(&backoff.next(0.0, 30.0)), "the coordinator named a time");
    }

    #[test]
    fn workers_that_were_cut_off_together_come_back_apart() {
        let pauses = |name, now| {
            let mut backoff = Backoff::new(name, now);
            [0; 4].map(|_| backoff.next(0.0, 0.0).to_bits())
        };
        assert_ne!(pauses("a", 1.0), pauses("b", 1.0));
        assert_ne!(pauses("a", 1.0), pauses("a", 1.001));
        assert_eq!(pauses("a", 1.0), pauses("a", 1.0));
    }
}
