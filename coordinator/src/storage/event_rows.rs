//! The rows of the event log: written, bounded in number, and read again at the next start.

use std::collections::HashMap;

use control::Record;
use protocol::view::CurvePoint;
use rusqlite::{Connection, Transaction};

/// Rows kept of each kind of record. When there are more, every second one of the older half goes, so that what is left
/// covers the whole run, the older the coarser.
const MOST: u64 = 8192;
/// Rows kept of each kind that makes the ledger, where the oldest half goes: a ledger with gaps would be none.
const MOST_OF_LEDGER: u64 = 1 << 18;
/// The kinds that make the ledger.
const LEDGER: [&str; 3] = ["work_accepted", "delta_accepted", "delta_refused"];
/// The kind whose rows make the learning curve.
const POINT: &str = "point";
/// In `meta`: the largest number that a worker has had. Rows of workers that came and went may be gone.
const LAST_WORKER: &str = "last_worker";

/// What an earlier process has left in the log.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// Largest number of a worker; 0 without one.
    pub(crate) last_worker: u64,
    /// The learning curve.
    pub(crate) curve: Vec<CurvePoint>,
}

/// The log's tables, and how many rows there are of each kind.
#[derive(Debug)]
pub(super) struct EventRows {
    connection: Connection,
    counts: HashMap<String, u64>,
    most: u64,
}

impl EventRows {
    /// The tables, made where they are not there yet.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn open(connection: Connection) -> Result<Self, rusqlite::Error> {
        connection.execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = NORMAL;
             CREATE TABLE IF NOT EXISTS events (
                 id INTEGER PRIMARY KEY AUTOINCREMENT,
                 at_ms INTEGER NOT NULL,
                 what TEXT NOT NULL,
                 record TEXT NOT NULL
             ) STRICT;
             CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;",
        )?;
        let counts = connection
            .prepare("SELECT what, count(*) FROM events GROUP BY what")?
            .query_map((), |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?
            .collect::<Result<_, _>>()?;
        Ok(Self { connection, counts, most: MOST })
    }

    /// What is needed of the rows to go on with the run.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn past(&self) -> Result<Past, rusqlite::Error> {
        let noted: Option<i64> = self.connection.query_row(
            "SELECT max(value) FROM meta WHERE name = ?1",
            [LAST_WORKER],
            |row| row.get(0),
        )?;
        let mut past = Past { last_worker: noted.unwrap_or(0) as u64, curve: vec![] };
        let mut query = self.connection.prepare("SELECT record FROM events WHERE what = ?1 ORDER BY id")?;
        let mut rows = query.query([POINT])?;
        while let Some(row) = rows.next()? {
            if let Ok(Record::Point { point }) = serde_json::from_str(&row.get::<_, String>(0)?) {
                past.curve.push(point);
            }
        }
        Ok(past)
    }

    /// Appends records, each with its time in milliseconds since 1970, and thins kinds of which there are too many.
    ///
    /// # Errors
    /// The database's; then none of them is written.
    pub(super) fn append(&mut self, batch: &[(i64, Record)]) -> Result<(), Box<dyn std::error::Error>> {
        let transaction = self.connection.transaction()?;
        let mut counts = self.counts.clone();
        for (at, record) in batch {
            let value = serde_json::to_value(record)?;
            let what = value.get("what").and_then(|w| w.as_str()).unwrap_or_default();
            transaction
                .prepare_cached("INSERT INTO events (at_ms, what, record) VALUES (?1, ?2, ?3)")?
                .execute((at, what, value.to_string()))?;
            *counts.entry(what.to_owned()).or_default() += 1;
            if let Record::WorkerJoined { worker, .. } = record {
                transaction
                    .prepare_cached(
                        "INSERT INTO meta (name, value) VALUES (?1, ?2)
                         ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
                    )?
                    .execute((LAST_WORKER, i64::try_from(worker.0)?))?;
            }
        }
        for (what, count) in &mut counts {
            if LEDGER.contains(&what.as_str()) {
                if *count > MOST_OF_LEDGER {
                    *count -= drop_oldest(&transaction, what, *count / 2)?;
                }
            } else if *count > self.most {
                *count -= thin(&transaction, what, *count / 2)?;
            }
        }
        transaction.commit()?;
        self.counts = counts;
        Ok(())
    }
}

/// Removes every second row of a kind among its oldest `among`; gives how many.
///
/// Points that were measured on the held-out split go only where leaving them out would free next to nothing.
fn thin(transaction: &Transaction<'_>, what: &str, among: u64) -> Result<u64, rusqlite::Error> {
    let remove = |plain: bool| {
        transaction.execute(
            "DELETE FROM events WHERE id IN (
                 SELECT id FROM (
                     SELECT id, row_number() OVER (ORDER BY id) AS number FROM (
                         SELECT id, record FROM events WHERE what = ?1 ORDER BY id LIMIT ?2
                     ) WHERE NOT ?3 OR json_extract(record, '$.point.validation_loss') IS NULL
                 ) WHERE number % 2 = 0
             )",
            (what, among as i64, plain),
        )
    };
    let removed = remove(what == POINT)? as u64;
    if what == POINT && removed < among / 8 { Ok(removed + remove(false)? as u64) } else { Ok(removed) }
}

/// Removes the oldest `count` rows of a kind; gives how many.
fn drop_oldest(transaction: &Transaction<'_>, what: &str, count: u64) -> Result<u64, rusqlite::Error> {
    let removed = transaction.execute(
        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE what = ?1 ORDER BY id LIMIT ?2)",
        (what, count as i64),
    )?;
    Ok(removed as u64)
}

#[cfg(test)]
mod tests {
    use protocol::worker_id::WorkerId;

    use super::*;

    fn rows(most: u64) -> EventRows {
        EventRows { most, ..EventRows::open(Connection::open_in_memory().unwrap()).unwrap() }
    }

    fn point(step: u64) -> Record {
        let point = CurvePoint {
            step,
            train_loss: 2.0,
            validation_loss: step.is_multiple_of(20).then_some(1.0),
            learning_rate: 0.1,
            tokens_per_second: 1.0,
            evaluation: None,
            participation: None,
        };
        Record::Point { point }
    }

    #[test]
    fn the_number_of_rows_does_not_grow_with_the_steps_and_the_curve_keeps_its_ends_and_measurements() {
        let mut log = rows(200);
        for batch in (1..=4000u64).collect::<Vec<_>>().chunks(7) {
            let records: Vec<_> = batch.iter().map(|step| (0, point(*step))).collect();
            log.append(&records).unwrap();
        }
        let curve = log.past().unwrap().curve;
        assert!(curve.len() <= 207, "{}", curve.len());
        assert!(curve.is_sorted_by_key(|point| point.step));
        assert_eq!((curve[0].step, curve[curve.len() - 1].step), (1, 4000));
        let measured = curve.iter().filter(|point| point.validation_loss.is_some()).count();
        assert!(measured > 40, "{measured} of 200 measurements are left");
        let counted: i64 =
            log.connection.query_row("SELECT count(*) FROM events", (), |row| row.get(0)).unwrap();
        assert_eq!(counted as u64, log.counts[POINT]);
    }

    #[test]
    fn a_workers_number_outlives_its_row() {
        let mut log = rows(10);
        let joined = |number| (0, Record::WorkerJoined { worker: WorkerId(number), name: "w".into() });
        for number in [700, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16] {
            log.append(&[joined(number)]).unwrap();
        }
        assert_eq!(log.past().unwrap().last_worker, 700);
    }

    #[test]
    fn the_ledger_is_not_thinned() {
        let mut log = rows(10);
        let refused = Record::DeltaRefused {
            round: 1,
            worker: WorkerId(1),
            refusal: "norm".into(),
            words: "too long".into(),
        };
        log.append(&vec![(0, refused); 50]).unwrap();
        assert_eq!(log.counts["delta_refused"], 50);
    }
}
