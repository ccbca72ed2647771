//! The append-only event log, in SQLite: what happened in a run, and whose work was accepted or refused.

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
    time::{SystemTime, UNIX_EPOCH},
};

use rusqlite::Connection;

use control::Record;
use protocol::view::CurvePoint;

#[derive(Debug, thiserror::Error)]
pub enum EventLogError {
    #[error("the event log {path} cannot be used ({source}); name another folder with --data-dir")]
    Open { path: PathBuf, source: rusqlite::Error },
}

/// Appends records on a thread of its own, so that a slow disk does not hold up a run.
#[derive(Debug)]
pub struct EventLog {
    queue: Option<mpsc::Sender<(i64, Record)>>,
    writer: Option<JoinHandle<()>>,
}

/// What an earlier process has left in the log.
#[derive(Debug, Default)]
pub struct Past {
    /// Largest number of a worker; 0 without one.
    pub last_worker: u64,
    /// The learning curve.
    pub curve: Vec<CurvePoint>,
}

impl EventLog {
    /// What earlier processes wrote; nothing where there is no log.
    ///
    /// # Errors
    /// A log that is there and cannot be read.
    pub fn read(path: &Path) -> Result<Past, EventLogError> {
        if !path.exists() {
            return Ok(Past::default());
        }
        let opened = |source| EventLogError::Open { path: path.to_path_buf(), source };
        let connection = Connection::open(path).map_err(opened)?;
        read_past(&connection).map_err(opened)
    }

    pub fn open(path: &Path) -> Result<Self, EventLogError> {
        let opened = |source| EventLogError::Open { path: path.to_path_buf(), source };
        let connection = Connection::open(path).map_err(opened)?;
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = NORMAL;
                 CREATE TABLE IF NOT EXISTS events (
                     id INTEGER PRIMARY KEY AUTOINCREMENT,
                     at_ms INTEGER NOT NULL,
                     what TEXT NOT NULL,
                     record TEXT NOT NULL
                 ) STRICT;",
            )
            .map_err(opened)?;
        let (queue, records) = mpsc::channel();
        let writer = std::thread::spawn(move || write(connection, &records));
        Ok(Self { queue: Some(queue), writer: Some(writer) })
    }

    /// Queue a record with the time of now.
    pub fn append(&self, record: Record) {
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

fn read_past(connection: &Connection) -> Result<Past, rusqlite::Error> {
    let mut past = Past::default();
    let mut query = connection.prepare(
        "SELECT record FROM events WHERE what IN
         ('worker_joined', 'step_done', 'validated', 'round_closed', 'evaluated', 'point') ORDER BY id",
    )?;
    let mut rows = query.query(())?;
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        match serde_json::from_str(&text) {
            Ok(Record::WorkerJoined { worker, .. }) => past.last_worker = past.last_worker.max(worker.0),
            Ok(Record::Point { point }) => past.curve.push(point),
            _ => {}
        }
    }
    Ok(past)
}

/// Write whatever has come, many records to a transaction when they come fast.
fn write(mut connection: Connection, records: &mpsc::Receiver<(i64, Record)>) {
    while let Ok(first) = records.recv() {
        let batch: Vec<_> = std::iter::once(first).chain(records.try_iter()).collect();
        if let Err(e) = append(&mut connection, &batch) {
            tracing::error!("the event log could not be written: {e}");
        }
    }
}

fn append(connection: &mut Connection, batch: &[(i64, Record)]) -> Result<(), Box<dyn std::error::Error>> {
    let transaction = connection.transaction()?;
    {
        let mut insert =
            transaction.prepare_cached("INSERT INTO events (at_ms, what, record) VALUES (?1, ?2, ?3)")?;
        for (at, record) in batch {
            let value = serde_json::to_value(record)?;
            let what = value.get("what").and_then(|w| w.as_str()).unwrap_or_default();
            insert.execute((at, what, value.to_string()))?;
        }
    }
    Ok(transaction.commit()?)
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
