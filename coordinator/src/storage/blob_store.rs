//! The store of content-addressed blobs: weights, parts of snapshots and deltas, as files named by their hash.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    path::Path,
    sync::Arc,
    time::Duration,
};

use axum::body::Bytes;
use futures::TryStreamExt;
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path as ObjectPath,
};
use protocol::{
    blob::{BlobHash, BlobRef},
    worker_id::WorkerId,
};
use tokio::sync::Mutex;

/// Uploads that one worker may have open at a time.
const MOST_OPEN: usize = 4;

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    #[error("the blob store failed: {0}")]
    Store(#[from] object_store::Error),
    #[error("the next piece must begin at byte {at}")]
    OutOfOrder { at: u64 },
    #[error("a blob may be at most {limit} bytes long, this one has {bytes}")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("the bytes do not have the hash they are named by; upload them again")]
    WrongHash,
    #[error("{MOST_OPEN} uploads of this worker are open; finish one first")]
    TooMany,
}

/// A blob whose pieces are still arriving.
struct Partial {
    upload: Box<dyn MultipartUpload>,
    hasher: blake3::Hasher,
    received: u64,
    total: u64,
    /// Who uploads it; None: the organizer.
    owner: Option<WorkerId>,
}

/// The store, and the uploads under way.
pub(crate) struct BlobStore {
    store: Arc<dyn ObjectStore>,
    partial: Mutex<HashMap<BlobHash, Partial>>,
    /// Largest blob that is taken, in bytes.
    limit: u64,
}

fn place(hash: BlobHash) -> ObjectPath {
    ObjectPath::from(hash.to_string())
}

/// Removes what uploads of an earlier process have left unfinished: their names end in `#` and a number.
fn sweep_staging(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().contains('#')) {
        // What cannot be removed only takes up room.
        let _ = std::fs::remove_file(entry.path());
    }
}

impl BlobStore {
    /// Blobs as files in `folder`, which must exist.
    pub(crate) fn in_folder(folder: &Path, limit: u64) -> Result<Self, BlobError> {
        sweep_staging(folder);
        // A blob is on disk before the manifest that names it.
        let store = Arc::new(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true));
        Ok(Self { store, partial: Mutex::default(), limit })
    }

    /// Bytes of the largest blob that is taken.
    pub(crate) fn largest(&self) -> u64 {
        self.limit
    }

    /// Length of a stored blob.
    pub(crate) async fn length(&self, hash: BlobHash) -> Result<Option<u64>, BlobError> {
        match self.store.head(&place(hash)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Bytes of an unfinished upload that have arrived.
    pub(crate) async fn received(&self, hash: BlobHash) -> Option<u64> {
        self.partial.lock().await.get(&hash).map(|p| p.received)
    }

    pub(crate) async fn read(&self, hash: BlobHash, range: Range<u64>) -> Result<Bytes, BlobError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        Ok(self.store.get_range(&place(hash), range).await?)
    }

    /// A whole blob.
    pub(crate) async fn fetch(&self, blob: BlobRef) -> Result<Bytes, BlobError> {
        self.read(blob.hash, 0..blob.bytes).await
    }

    /// Store the coordinator's own bytes.
    pub(crate) async fn store(&self, bytes: Bytes) -> Result<BlobRef, BlobError> {
        let blob = BlobRef::of(&bytes);
        // A file of another length is what a crash has left of it.
        if self.length(blob.hash).await? != Some(blob.bytes) {
            self.store.put(&place(blob.hash), bytes.into()).await?;
        }
        Ok(blob)
    }

    /// Delete what `keep` does not name and has not been touched for `age`: leftovers that nothing names.
    pub(crate) async fn sweep(&self, keep: &HashSet<BlobHash>, age: Duration) -> Result<(), BlobError> {
        let listed: Vec<_> = self.store.list(None).try_collect().await?;
        let now = std::time::SystemTime::now();
        for meta in listed {
            let old = now.duration_since(meta.last_modified.into()).is_ok_and(|since| since > age);
            let hash = meta.location.filename().and_then(|name| name.parse::<BlobHash>().ok());
            if let Some(hash) = hash.filter(|hash| old && !keep.contains(hash)) {
                self.delete(hash).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn delete(&self, hash: BlobHash) -> Result<(), BlobError> {
        match self.store.delete(&place(hash)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Ends the uploads of a worker that is gone.
    pub(crate) async fn abandon(&self, worker: WorkerId) {
        let mut uploads = self.partial.lock().await;
        let theirs: Vec<BlobHash> = uploads
            .iter()
            .filter(|(_, partial)| partial.owner == Some(worker))
            .map(|(hash, _)| *hash)
            .collect();
        for hash in theirs {
            if let Some(mut partial) = uploads.remove(&hash) {
                // What cannot be removed only takes up room, until the next start.
                let _ = partial.upload.abort().await;
            }
        }
    }

    /// Whether a blob is there, whole, with the bytes it is named by.
    ///
    /// # Errors
    /// The store's, other than that there is no such blob.
    pub(crate) async fn is_whole(&self, blob: BlobRef) -> Result<bool, BlobError> {
        if self.length(blob.hash).await? != Some(blob.bytes) {
            return Ok(false);
        }
        Ok(BlobRef::of(&self.fetch(blob).await?) == blob)
    }

    /// Take a piece that begins at `at`. True when the blob is whole and stored.
    ///
    /// # Errors
    /// Why the piece is not taken; after [`BlobError::Store`] and [`BlobError::WrongHash`] the upload begins anew.
    pub(crate) async fn piece(
        &self,
        owner: Option<WorkerId>,
        hash: BlobHash,
        at: u64,
        total: u64,
        bytes: Bytes,
    ) -> Result<bool, BlobError> {
        if total > self.limit {
            return Err(BlobError::TooLarge { bytes: total, limit: self.limit });
        }
        let mut uploads = self.partial.lock().await;
        if self.length(hash).await? == Some(total) {
            return Ok(true); // somebody else was faster
        }
        if at == 0 {
            let open = uploads.iter().filter(|(other, p)| p.owner == owner && **other != hash).count();
            if open >= MOST_OPEN {
                return Err(BlobError::TooMany);
            }
            // A first piece begins anew, also after an upload that was given up.
            let upload = self.store.put_multipart(&place(hash)).await?;
            let fresh = Partial { upload, hasher: blake3::Hasher::new(), received: 0, total, owner };
            if let Some(mut old) = uploads.insert(hash, fresh) {
                let _ = old.upload.abort().await;
            }
        }
        let Some(partial) = uploads.get_mut(&hash) else { return Err(BlobError::OutOfOrder { at: 0 }) };
        if partial.received != at || partial.total != total || at + bytes.len() as u64 > total {
            return Err(BlobError::OutOfOrder { at: partial.received });
        }
        partial.hasher.update(&bytes);
        partial.received += bytes.len() as u64;
        let stored = partial.upload.put_part(bytes.into()).await;
        let whole = partial.received == partial.total;
        if stored.is_ok() && !whole {
            return Ok(false);
        }
        let Some(mut partial) = uploads.remove(&hash) else { return Ok(false) };
        if stored.is_ok() && *partial.hasher.finalize().as_bytes() == hash.0 {
            partial.upload.complete().await?;
            return Ok(true);
        }
        partial.upload.abort().await?;
        stored?;
        Err(BlobError::WrongHash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_make_a_blob_only_in_order_and_only_with_the_right_hash() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::in_folder(folder.path(), 100).unwrap();
        let blob = BlobRef::of(b"hello world");
        let put = |at, bytes: &'static [u8]| blobs.piece(None, blob.hash, at, 11, Bytes::from_static(bytes));
        assert!(matches!(put(6, b"world").await, Err(BlobError::OutOfOrder { at: 0 })));
        assert!(!put(0, b"hello ").await.unwrap());
        assert_eq!(blobs.received(blob.hash).await, Some(6));
        assert_eq!(blobs.length(blob.hash).await.unwrap(), None);
        assert!(matches!(put(3, b"lo").await, Err(BlobError::OutOfOrder { at: 6 })));
        assert!(put(6, b"world").await.unwrap());
        assert_eq!(blobs.fetch(blob).await.unwrap().as_ref(), b"hello world");
        assert_eq!(blobs.read(blob.hash, 6..11).await.unwrap().as_ref(), b"world");

        let other = BlobRef::of(b"other");
        let wrong = blobs.piece(None, other.hash, 0, 5, Bytes::from_static(b"wrong")).await;
        assert!(matches!(wrong, Err(BlobError::WrongHash)));
        assert_eq!(blobs.length(other.hash).await.unwrap(), None);
        let large = blobs.piece(None, other.hash, 0, 101, Bytes::from_static(b"other")).await;
        assert!(matches!(large, Err(BlobError::TooLarge { .. })));
    }
}
