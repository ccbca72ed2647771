//! Accepted work of this tab over all its sessions: after a reconnect the coordinator counts from 0 for a new
//! worker, and after Stop it lists none.

/// A sum over the workers that this tab has been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Of earlier workers.
    before: u64,
    /// The present or last worker, and what was counted of it.
    now: Option<(u64, u64)>,
}

impl Tally {
    /// The coordinator has counted so much of this worker.
    pub(crate) fn count(&mut self, worker: u64, accepted: u64) {
        match &mut self.now {
            // An accepted delta may be withdrawn within its round, so the count may also fall.
            Some((known, counted)) if *known == worker => *counted = accepted,
            _ => {
                self.before = self.sum();
                self.now = Some((worker, accepted));
            }
        }
    }

    /// Everything so far.
    pub(crate) fn sum(&self) -> u64 {
        self.before + self.now.map_or(0, |(_, counted)| counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconnect_does_not_begin_at_nothing() {
        let mut tally = Tally::default();
        assert_eq!(tally.sum(), 0);
        tally.count(7, 3);
        tally.count(7, 5);
        assert_eq!(tally.sum(), 5);
        tally.count(9, 0);
        assert_eq!(tally.sum(), 5);
        tally.count(9, 2);
        assert_eq!(tally.sum(), 7);
    }
}
