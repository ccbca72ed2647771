//! What a coordinator holds at a moment.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use tests::{Coordinator, resources};

/// The log of events, in the data folder.
const LOG: &str = "events.sqlite";

/// One look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Since the run began.
    pub seconds: f64,
    /// Steps done.
    pub step: f64,
    /// Megabytes in memory.
    pub memory: f64,
    /// Open files and connections.
    pub files: f64,
    pub threads: f64,
    /// Rows of the event log.
    pub rows: f64,
    /// Megabytes of the data folder without the log.
    pub data: f64,
    /// Workers connected, as `/metrics` has them.
    pub workers: f64,
    /// Lines of `/metrics` about single workers.
    pub series: f64,
}

impl Sample {
    /// # Errors
    /// When the coordinator is gone, does not answer, or there is no Linux.
    pub(crate) async fn take(coordinator: &Coordinator, at: Duration) -> Result<Self> {
        let pid = coordinator.process.id();
        let run = coordinator.api.run().await?;
        let (_, metrics) = coordinator.api.text("/metrics").await?;
        let workers = metrics.lines().find_map(|line| line.strip_prefix("cohort_workers "));
        Ok(Self {
            seconds: at.as_secs_f64(),
            step: run.step as f64,
            memory: megabytes(resources::memory(pid)?.now),
            files: entries(&format!("/proc/{pid}/fd"))?,
            threads: entries(&format!("/proc/{pid}/task"))?,
            rows: rows(&coordinator.data().join(LOG))?,
            data: megabytes(size(&coordinator.data())),
            workers: workers.and_then(|n| n.parse().ok()).context("/metrics has no cohort_workers")?,
            series: metrics.lines().filter(|line| line.starts_with("cohort_worker_")).count() as f64,
        })
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn entries(folder: &str) -> Result<f64> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {folder}: this is for Linux only"))?;
    Ok(entries.count() as f64)
}

fn rows(log: &Path) -> Result<f64> {
    let connection = Connection::open_with_flags(log, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    Ok(connection.query_row("SELECT count(*) FROM events", (), |row| row.get::<_, i64>(0))? as f64)
}

/// Bytes of the files below, without the log's. A file that goes while it is looked at counts as nothing.
fn size(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else { return 0 };
    let is_log = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(LOG));
    if !about.is_dir() {
        return if is_log { 0 } else { about.len() };
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path())).sum()
}
