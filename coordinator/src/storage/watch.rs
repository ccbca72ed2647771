//! Whether the disk takes writes: a run is held while it does not, and goes on by itself once it does.

use std::{
    error::Error,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use control::Event;
use tokio::{sync::mpsc, time::sleep};

/// How often a disk that refused is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Bytes that must fit before it counts as taking writes again.
const ENOUGH: usize = 1 << 20;

/// Told of every write that failed; tells the run.
#[derive(Debug, Clone)]
pub(crate) struct StorageWatch {
    folder: PathBuf,
    events: mpsc::Sender<Event>,
    failing: Arc<AtomicBool>,
}

impl StorageWatch {
    /// For a folder on the disk in question.
    pub(crate) fn new(folder: &Path, events: mpsc::Sender<Event>) -> Self {
        Self { folder: folder.into(), events, failing: Arc::default() }
    }

    /// A write has failed: hold the run, and try until writes pass again.
    pub(crate) fn failed(&self, error: &(dyn Error + 'static)) {
        if self.failing.swap(true, Ordering::Relaxed) {
            return;
        }
        let words = in_words(error);
        tracing::error!("{words}; the run is held until the disk takes writes again");
        let watch = self.clone();
        tokio::spawn(async move {
            let _ = watch.events.send(Event::Storage(Err(words))).await;
            loop {
                sleep(TRY_AGAIN).await;
                let folder = watch.folder.clone();
                if matches!(tokio::task::spawn_blocking(move || try_to_write(&folder)).await, Ok(Ok(()))) {
                    break;
                }
            }
            tracing::info!("the disk takes writes again");
            watch.failing.store(false, Ordering::Relaxed);
            let _ = watch.events.send(Event::Storage(Ok(()))).await;
        });
    }
}

fn try_to_write(folder: &Path) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&vec![0; ENOUGH])?;
    file.as_file().sync_all()
}

/// What is wrong with the disk, for people.
fn in_words(error: &(dyn Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => return "disk full".into(),
                io::ErrorKind::ReadOnlyFilesystem => return "the disk is read-only".into(),
                io::ErrorKind::PermissionDenied => return "the data folder may not be written".into(),
                _ => {}
            }
        }
        cause = error.source();
    }
    format!("the disk refuses writes ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_is_told_once_and_its_end_too() {
        let folder = tempfile::tempdir().unwrap();
        let (events, mut told) = mpsc::channel(8);
        let watch = StorageWatch::new(folder.path(), events);
        watch.failed(&io::Error::from(io::ErrorKind::StorageFull));
        watch.failed(&io::Error::from(io::ErrorKind::StorageFull));
        assert!(matches!(told.recv().await, Some(Event::Storage(Err(words))) if words == "disk full"));
        assert!(matches!(told.recv().await, Some(Event::Storage(Ok(())))));
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn causes_inside_other_errors_are_found() {
        let io = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        let outer = object_store::Error::Generic { store: "files", source: Box::new(io) };
        assert_eq!(in_words(&outer), "the disk is read-only");
    }
}
