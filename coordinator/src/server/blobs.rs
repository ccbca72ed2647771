//! Content-addressed blobs over HTTP: weights and snapshots, in pieces, resumable.
//!
//! ```text
//! HEAD /v1/blobs/{blake3}   200 with the length; or 404, with Upload-Offset if a part has arrived
//! GET  /v1/blobs/{blake3}   whole, or one Range
//! PUT  /v1/blobs/{blake3}   one piece, with Content-Range: bytes FIRST-LAST/TOTAL; in order
//! ```
//!
//! All of them take the bearer token of a session. A blob exists once its last piece has arrived and its
//! bytes have the hash they are named by.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    path::Path as FsPath,
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::put,
};
use futures::TryStreamExt;
use object_store::{
    MultipartUpload, ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path as ObjectPath,
};
use protocol::blob::{BlobHash, BlobRef, CHUNK, NotABlobHash};
use tokio::sync::Mutex;

use super::{
    Shared,
    api::{bearer, problem},
};
use crate::run::event::WorkerId;

/// Where the next piece of an upload must begin.
const UPLOAD_OFFSET: &str = "upload-offset";

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("the blob store failed: {0}")]
    Store(#[from] object_store::Error),
    #[error("the next piece must begin at byte {at}")]
    OutOfOrder { at: u64 },
    #[error("a blob may be at most {limit} bytes long, this one has {bytes}")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("the bytes do not have the hash they are named by; upload them again")]
    WrongHash,
}

/// A blob whose pieces are still arriving.
struct Partial {
    upload: Box<dyn MultipartUpload>,
    hasher: blake3::Hasher,
    received: u64,
    total: u64,
}

/// The store, and the uploads under way.
pub struct BlobStore {
    store: Arc<dyn ObjectStore>,
    partial: Mutex<HashMap<BlobHash, Partial>>,
    /// Largest blob that is taken, in bytes.
    limit: u64,
}

fn place(hash: BlobHash) -> ObjectPath {
    ObjectPath::from(hash.to_string())
}

impl BlobStore {
    /// Blobs as files in `folder`, which must exist.
    pub fn in_folder(folder: &FsPath, limit: u64) -> Result<Self, BlobError> {
        let store = Arc::new(LocalFileSystem::new_with_prefix(folder)?);
        Ok(Self { store, partial: Mutex::default(), limit })
    }

    /// Length of a stored blob.
    pub async fn length(&self, hash: BlobHash) -> Result<Option<u64>, BlobError> {
        match self.store.head(&place(hash)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Bytes of an unfinished upload that have arrived.
    pub async fn received(&self, hash: BlobHash) -> Option<u64> {
        self.partial.lock().await.get(&hash).map(|p| p.received)
    }

    pub async fn read(&self, hash: BlobHash, range: Range<u64>) -> Result<Bytes, BlobError> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        Ok(self.store.get_range(&place(hash), range).await?)
    }

    /// A whole blob.
    pub async fn fetch(&self, blob: BlobRef) -> Result<Bytes, BlobError> {
        self.read(blob.hash, 0..blob.bytes).await
    }

    /// Store the coordinator's own bytes.
    pub async fn store(&self, bytes: Bytes) -> Result<BlobRef, BlobError> {
        let blob = BlobRef::of(&bytes);
        if self.length(blob.hash).await?.is_none() {
            self.store.put(&place(blob.hash), bytes.into()).await?;
        }
        Ok(blob)
    }

    /// Delete what `keep` does not name and has not been touched for `age`: leftovers that nothing names.
    pub async fn sweep(&self, keep: &HashSet<BlobHash>, age: Duration) -> Result<(), BlobError> {
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

    pub async fn delete(&self, hash: BlobHash) -> Result<(), BlobError> {
        match self.store.delete(&place(hash)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Take a piece that begins at `at`. True when the blob is whole and stored.
    pub async fn piece(&self, hash: BlobHash, at: u64, total: u64, bytes: Bytes) -> Result<bool, BlobError> {
        if total > self.limit {
            return Err(BlobError::TooLarge { bytes: total, limit: self.limit });
        }
        let mut uploads = self.partial.lock().await;
        if self.length(hash).await?.is_some() {
            return Ok(true); // somebody else was faster
        }
        if at == 0 {
            // A first piece begins anew, also after an upload that was given up.
            let upload = self.store.put_multipart(&place(hash)).await?;
            let fresh = Partial { upload, hasher: blake3::Hasher::new(), received: 0, total };
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

pub fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/blobs/{hash}", put(upload).get(download))
        .layer(DefaultBodyLimit::max(CHUNK as usize))
}

/// The blob a request is about, if its bearer may have it, and the worker it comes from.
fn allowed(
    shared: &Shared,
    headers: &HeaderMap,
    hash: &str,
) -> Result<(BlobHash, Option<WorkerId>), Box<Response>> {
    let token = bearer(headers).unwrap_or_default();
    let worker = shared.hub.bearer(token);
    if worker.is_none() && !crate::token::equal(token, &shared.organizer) {
        return Err(Box::new(problem(StatusCode::UNAUTHORIZED, "blobs are for workers in a session")));
    }
    match hash.parse() {
        Ok(hash) => Ok((hash, worker)),
        Err(e @ NotABlobHash) => Err(Box::new(problem(StatusCode::BAD_REQUEST, &e.to_string()))),
    }
}

fn failed(error: &BlobError) -> Response {
    let status = match error {
        BlobError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        BlobError::OutOfOrder { .. } => StatusCode::CONFLICT,
        BlobError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BlobError::WrongHash => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let mut response = problem(status, &error.to_string());
    if let BlobError::OutOfOrder { at } = error {
        response.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(*at));
    }
    response
}

async fn upload(
    State(shared): State<Arc<Shared>>,
    Path(hash): Path<String>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let (hash, worker) = match allowed(&shared, &headers, &hash) {
        Ok(allowed) => allowed,
        Err(response) => return *response,
    };
    let Some((at, total)) = content_range(&headers, bytes.len() as u64) else {
        return problem(
            StatusCode::BAD_REQUEST,
            "Content-Range must read `bytes FIRST-LAST/TOTAL` and fit the length of the body",
        );
    };
    if let Some(worker) = worker {
        shared.hub.count_up(worker, bytes.len() as u64);
    }
    match shared.blobs.piece(hash, at, total, bytes).await {
        Ok(true) => StatusCode::CREATED.into_response(),
        Ok(false) => StatusCode::ACCEPTED.into_response(),
        Err(e) => failed(&e),
    }
}

/// First byte and total length; without the header the body is the whole blob.
fn content_range(headers: &HeaderMap, length: u64) -> Option<(u64, u64)> {
    let Some(text) = headers.get(header::CONTENT_RANGE) else { return Some((0, length)) };
    let (range, total) = text.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total): (u64, u64, u64) =
        (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
    (last.checked_sub(first)?.checked_add(1)? == length && last < total).then_some((first, total))
}

async fn download(
    State(shared): State<Arc<Shared>>,
    Path(hash): Path<String>,
    headers: HeaderMap,
) -> Response {
    let (hash, worker) = match allowed(&shared, &headers, &hash) {
        Ok(allowed) => allowed,
        Err(response) => return *response,
    };
    let length = match shared.blobs.length(hash).await {
        Ok(Some(length)) => length,
        Ok(None) => {
            let mut response = problem(StatusCode::NOT_FOUND, "there is no such blob");
            if let Some(received) = shared.blobs.received(hash).await {
                response.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(received));
            }
            return response;
        }
        Err(e) => return failed(&e),
    };
    let range = match headers.get(header::RANGE) {
        None => 0..length,
        Some(text) => match text.to_str().ok().and_then(|t| requested(t, length)) {
            Some(range) => range,
            None => {
                let mut response =
                    problem(StatusCode::RANGE_NOT_SATISFIABLE, "the range is outside the blob");
                if let Ok(value) = HeaderValue::from_str(&format!("bytes */{length}")) {
                    response.headers_mut().insert(header::CONTENT_RANGE, value);
                }
                return response;
            }
        },
    };
    let partial = headers.contains_key(header::RANGE);
    let content_range = format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1));
    let bytes = match shared.blobs.read(hash, range).await {
        Ok(bytes) => bytes,
        Err(e) => return failed(&e),
    };
    if let Some(worker) = worker {
        shared.hub.count_down(worker, bytes.len() as u64);
    }
    let mut response = Response::new(bytes.into());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // The name is the hash of the content: it can never be another.
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    if partial {
        if let Ok(value) = HeaderValue::from_str(&content_range) {
            fields.insert(header::CONTENT_RANGE, value);
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

/// One byte range: `bytes=FIRST-LAST` or `bytes=FIRST-`.
fn requested(text: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    let end = match last {
        "" => length,
        last => last.parse::<u64>().ok()?.checked_add(1)?.min(length),
    };
    (first < end).then_some(first..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_make_a_blob_only_in_order_and_only_with_the_right_hash() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = BlobStore::in_folder(folder.path(), 100).unwrap();
        let blob = BlobRef::of(b"hello world");
        let put = |at, bytes: &'static [u8]| blobs.piece(blob.hash, at, 11, Bytes::from_static(bytes));
        assert!(matches!(put(6, b"world").await, Err(BlobError::OutOfOrder { at: 0 })));
        assert!(!put(0, b"hello ").await.unwrap());
        assert_eq!(blobs.received(blob.hash).await, Some(6));
        assert_eq!(blobs.length(blob.hash).await.unwrap(), None);
        assert!(matches!(put(3, b"lo").await, Err(BlobError::OutOfOrder { at: 6 })));
        assert!(put(6, b"world").await.unwrap());
        assert_eq!(blobs.fetch(blob).await.unwrap().as_ref(), b"hello world");
        assert_eq!(blobs.read(blob.hash, 6..11).await.unwrap().as_ref(), b"world");

        let other = BlobRef::of(b"other");
        let wrong = blobs.piece(other.hash, 0, 5, Bytes::from_static(b"wrong")).await;
        assert!(matches!(wrong, Err(BlobError::WrongHash)));
        assert_eq!(blobs.length(other.hash).await.unwrap(), None);
        let large = blobs.piece(other.hash, 0, 101, Bytes::from_static(b"other")).await;
        assert!(matches!(large, Err(BlobError::TooLarge { .. })));
    }

    #[test]
    fn ranges_are_read_as_http_says() {
        assert_eq!(requested("bytes=0-3", 10), Some(0..4));
        assert_eq!(requested("bytes=4-", 10), Some(4..10));
        assert_eq!(requested("bytes=4-99", 10), Some(4..10));
        assert_eq!(requested("bytes=10-", 10), None);
        assert_eq!(requested("bytes=5-2", 10), None);
        assert_eq!(requested("items=0-1", 10), None);
    }
}
