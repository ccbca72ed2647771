//! Which local steps a round has: H each, and in the last what is left.

use std::ops::Range;

/// Local steps of `round`, counted over the whole run.
pub fn of_round(round: u64, local_steps: u32, steps: u64) -> Range<u64> {
    done(round, local_steps, steps)..done(round + 1, local_steps, steps)
}

/// Local steps of each block after so many rounds.
pub fn done(rounds: u64, local_steps: u32, steps: u64) -> u64 {
    rounds.saturating_mul(u64::from(local_steps)).min(steps)
}
