//! What was compared, and how close it was.

use std::{collections::BTreeMap, fmt};

use super::GoldenError;

/// Failures spelled out; one wrong kernel makes thousands.
const SPELLED_OUT: usize = 12;

/// Comparisons by kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    kinds: BTreeMap<&'static str, Kind>,
    failures: Vec<String>,
    failed: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Kind {
    comparisons: usize,
    /// Largest difference, as a share of its tolerance.
    worst: f64,
}

impl Report {
    /// Notes a difference against its tolerance. `place` says where, should it fail.
    pub(super) fn note(
        &mut self,
        kind: &'static str,
        difference: f64,
        tolerance: f64,
        place: impl FnOnce() -> String,
    ) {
        let share = difference / tolerance;
        let entry = self.kinds.entry(kind).or_default();
        entry.comparisons += 1;
        // NaN compares false with everything, so it must be looked for.
        if share > entry.worst || share.is_nan() {
            entry.worst = share;
        }
        if share.is_nan() || share > 1.0 {
            self.failed += 1;
            if self.failures.len() < SPELLED_OUT {
                self.failures
                    .push(format!("{kind}, {}: off by {difference:.3e}, allowed {tolerance:.3e}", place()));
            }
        }
    }

    /// Comparisons made.
    pub fn comparisons(&self) -> usize {
        self.kinds.values().map(|kind| kind.comparisons).sum()
    }

    pub(super) fn outcome(self) -> Result<Report, GoldenError> {
        if self.failed == 0 {
            return Ok(self);
        }
        let more = self.failed - self.failures.len();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Err(GoldenError::Off(format!("{}{more}", self.failures.join("; "))))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, kind) in &self.kinds {
            writeln!(
                f,
                "{name}: {} comparisons, worst {:.1} % of the tolerance",
                kind.comparisons,
                100.0 * kind.worst
            )?;
        }
        Ok(())
    }
}
