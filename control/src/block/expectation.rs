//! How long a worker is expected to take over a round, and who is not waited for.

use std::time::Duration;

use protocol::worker_id::WorkerId;

use super::Block;
use crate::{core::RunCore, pipeline::plan::Measured};

/// Weight of the newest round in what is expected of a worker.
pub(super) const NEWEST: f64 = 0.5;
/// A worker that was too late is expected to take this many times as long the next time.
pub(super) const MISSED: f64 = 1.5;
/// Seconds beyond which nobody is expected: a day. Without an end, a worker that is always late would be expected never.
pub(super) const LONGEST: f64 = 86_400.0;
/// Self-benchmarks see neither the noise nor the bytes on their way: the first round may take so many times as long.
const UNKNOWN: f64 = 2.0;
/// A worker of which nothing came for so many rounds in a row is not waited for.
const SILENT: u32 = 3;

impl Block {
    /// Workers that can hold a replica, as measured.
    pub(super) fn fitting(&self, core: &RunCore, now: Duration) -> Vec<Measured> {
        let mut measured = core.roster.measured(now);
        // 0: unknown, taken for enough.
        measured.retain(|m| m.memory_bytes == 0 || m.memory_bytes >= self.settings.replica_bytes);
        measured
    }

    /// Seconds from the opening of a round to this worker's delta.
    pub(super) fn expected_seconds(&self, worker: WorkerId, measured: Option<&Measured>) -> f64 {
        if let Some(observed) = self.replicas.get(&worker).and_then(|replica| replica.observed) {
            return observed;
        }
        let Some(measured) = measured else { return 1.0 };
        // Table, layers and head once each way, and the update.
        let step = f64::from(self.settings.layers_per_block) * measured.layer.total()
            + measured.embedding.total()
            + measured.head_seconds;
        let bytes = 4.0 * self.settings.parameters as f64 / self.updates.len() as f64;
        let link = measured.link.map_or(0.0, |l| bytes / l.up + bytes / l.down + 4.0 * l.round_trip_seconds);
        UNKNOWN * (f64::from(self.settings.local_steps) * step + link)
    }

    /// Whether nothing has come of this worker for some rounds: it may take part, and nobody waits for it.
    pub(super) fn is_silent(&self, worker: WorkerId) -> bool {
        self.replicas.get(&worker).is_some_and(|replica| replica.missed >= SILENT)
    }

    pub(super) fn waiting_reason(&self, core: &RunCore, now: Duration) -> String {
        let want = self.workers_wanted(core);
        let have = self.fitting(core, now).len();
        let suspended = core.roster.suspended(now);
        let small = core.roster.ready_count(now) - have;
        let measuring = core.roster.len() - core.roster.profiled_count();
        let mut words = match (have, measuring) {
            (0, 0) => format!("waiting for {want} worker{}", if want == 1 { "" } else { "s" }),
            (_, 0) => format!("{have} of {want} workers are ready"),
            _ => format!("{have} of {want} workers are ready, {measuring} measuring"),
        };
        if small > 0 {
            let mb = self.settings.replica_bytes.div_ceil(1_000_000);
            words.push_str(&format!("; {small} cannot give the {mb} MB that a block takes"));
        }
        if suspended > 0 {
            words.push_str(&format!("; {suspended} suspended after faults for a while"));
        }
        words
    }
}
