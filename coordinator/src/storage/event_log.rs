//! The event log, in SQLite: what happened in a run, and whose work was accepted or refused. Rows are appended by a
//! thread of their own.

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
    time::{SystemTime, UNIX_EPOCH},
};

use rusqlite::Connection;

use super::event_rows::{EventRows, Past};
use control::Record;

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventLogError {
    /// SQLite says no.
    #[error("the event log {path} cannot be used ({source}); name another folder with --data-dir")]
    Open { path: PathBuf, source: rusqlite::Error },
}

/// Appends records on a thread of its own, so that a slow disk does not hold up a run.
#[derive(Debug)]
pub(crate) struct EventLog {
    queue: Option<mpsc::Sender<(i64, Record)>>,
    writer: Option<JoinHandle<()>>,
}

impl EventLog {
    /// What earlier processes wrote; nothing where there is no log.
    ///
    /// # Errors
    /// A log that is there and cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Past, EventLogError> {
        if !path.exists() {
            return Ok(Past::default());
        }
        let opened = |source| EventLogError::Open { path: path.to_path_buf(), source };
        Connection::open(path).and_then(EventRows::open).and_then(|rows| rows.past()).map_err(opened)
    }

    /// Opens or makes the log, and begins the thread that writes it.
    ///
    /// # Errors
    /// A file that cannot be made or is no log.
    pub(crate) fn open(path: &Path) -> Result<Self, EventLogError> {
        let opened = |source| EventLogError::Open { path: path.to_path_buf(), source };
        let rows = Connection::open(path).and_then(EventRows::open).map_err(opened)?;
        let (queue, records) = mpsc::channel();
        let writer = std::thread::spawn(move || write(rows, &records));
        Ok(Self { queue: Some(queue), writer: Some(writer) })
    }

    /// Queues a record with the time of now.
    pub(crate) fn append(&self, record: Record) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        if let Some(queue) = &self.queue {
            let _ = queue.send((now, record));
        }
    }
}

impl Drop for EventLog {
    /// Waits until everything queued is written.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Writes whatever has come, many records to a transaction when they come fast.
fn write(mut rows: EventRows, records: &mpsc::Receiver<(i64, Record)>) {
    while let Ok(first) = records.recv() {
        let batch: Vec<_> = std::iter::once(first).chain(records.try_iter()).collect();
        if let Err(e) = rows.append(&batch) {
            tracing::error!("the event log could not be written: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::worker_id::WorkerId;

    #[test]
    fn what_is_appended_is_there_after_the_log_is_closed_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.sqlite");
        let records: Vec<Record> =
            (0..50).map(|i| Record::WorkerLeft { worker: WorkerId(i), why: format!("reason {i}") }).collect();
        let log = EventLog::open(&path).unwrap();
        for record in &records {
            log.append(record.clone());
        }
        drop(log);
        let connection = Connection::open(&path).unwrap();
        let mut query = connection.prepare("SELECT record FROM events ORDER BY id").unwrap();
        let read: Vec<Record> = query
            .query_map((), |row| row.get::<_, String>(0))
            .unwrap()
            .map(|text| serde_json::from_str(&text.unwrap()).unwrap())
            .collect();
        assert_eq!(read, records);
    }
}
