//! Content-addressed blobs over HTTP: weights and snapshots, in pieces, resumable.
//!
//! ```text
//! HEAD /v1/blobs/{blake3}   200 with the length; or 404, with Upload-Offset if a part has arrived
//! GET  /v1/blobs/{blake3}   whole, or one Range
//! PUT  /v1/blobs/{blake3}   one piece, with Content-Range: bytes FIRST-LAST/TOTAL; in order
//! ```
//!
//! All of them take the bearer token of a session. A blob exists once its last piece has arrived and its
//! bytes have the hash they are named by. A body is read only from a worker of whom one is expected.

use std::{io, ops::Range, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::put,
};
use futures::{Stream, StreamExt, stream};
use protocol::{
    blob::{BlobHash, CHUNK, NotABlobHash},
    worker_id::WorkerId,
};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Shared,
    answers::{bearer, later, problem},
    guard::asker,
    limits::Held,
    ranges::{Piece, requested, sent},
    receive,
};
use crate::storage::blob_store::BlobError;

/// When a request that the disk could not serve, or for which there was no room, may be tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Bytes that are read ahead of a download: what one that nobody reads takes.
const PIECE: u64 = 64 << 10;
/// Where the next piece of an upload must begin.
const UPLOAD_OFFSET: &str = "upload-offset";

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/v1/blobs/{hash}", put(upload).get(download))
}

/// The blob a request is about, if its bearer may have it, and the worker it comes from.
fn allowed(
    shared: &Shared,
    headers: &HeaderMap,
    hash: &str,
) -> Result<(BlobHash, Option<WorkerId>), Box<Response>> {
    let token = bearer(headers).unwrap_or_default();
    let worker = shared.hub.bearer(token);
    if worker.is_none() && !super::token::equal(token, &shared.organizer) {
        return Err(Box::new(problem(StatusCode::UNAUTHORIZED, "blobs are for workers in a session")));
    }
    match hash.parse() {
        Ok(hash) => Ok((hash, worker)),
        Err(e @ NotABlobHash) => Err(Box::new(problem(StatusCode::BAD_REQUEST, &e.to_string()))),
    }
}

fn failed(error: &BlobError) -> Response {
    let status = match error {
        BlobError::Store(_) => StatusCode::INSUFFICIENT_STORAGE,
        BlobError::OutOfOrder { .. } => StatusCode::CONFLICT,
        BlobError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        BlobError::WrongHash => StatusCode::UNPROCESSABLE_ENTITY,
        BlobError::TooMany => StatusCode::TOO_MANY_REQUESTS,
    };
    let words = error.to_string();
    let mut response = match error {
        BlobError::Store(_) | BlobError::TooMany => later(status, &words, AGAIN),
        _ => problem(status, &words),
    };
    if let BlobError::OutOfOrder { at } = error {
        response.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(*at));
    }
    response
}

async fn upload(State(shared): State<Arc<Shared>>, Path(hash): Path<String>, request: Request) -> Response {
    let permit = match shared.limits.take(asker(&request), Held::Transfer) {
        Ok(permit) => permit,
        Err(refused) => return refused.answer(),
    };
    let (head, body) = request.into_parts();
    let expected = match expected(&shared, &head.headers, &hash, receive::length(&body)) {
        Ok(expected) => expected,
        Err(response) => {
            receive::unwanted(body).await;
            return *response;
        }
    };
    let Expected { hash, worker, at, total, length, .. } = expected;
    let bytes = match receive::whole(body, length).await {
        Ok(bytes) => bytes,
        Err(response) => return *response,
    };
    if let Some(worker) = worker {
        shared.hub.count_up(worker, length);
    }
    let taken = shared.blobs.piece(worker, hash, at, total, bytes).await;
    drop(permit);
    if let Some(worker) = worker
        && !matches!(taken, Err(BlobError::Store(_) | BlobError::OutOfOrder { .. } | BlobError::TooMany))
    {
        shared.hub.uploaded(worker, length);
    }
    match taken {
        Ok(true) => StatusCode::CREATED.into_response(),
        Ok(false) => StatusCode::ACCEPTED.into_response(),
        Err(e) => {
            if let BlobError::Store(error) = &e {
                shared.storage.failed(error);
            }
            failed(&e)
        }
    }
}

/// A piece that may be sent.
struct Expected {
    hash: BlobHash,
    /// Who sends it; None: the organizer.
    worker: Option<WorkerId>,
    /// Where it begins.
    at: u64,
    total: u64,
    length: u64,
    /// The room that it takes while it arrives.
    _room: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

/// Whether a piece of `length` bytes is expected and has room: asked before any of it is read.
///
/// # Errors
/// The answer, if not.
fn expected(
    shared: &Shared,
    headers: &HeaderMap,
    hash: &str,
    length: Option<u64>,
) -> Result<Expected, Box<Response>> {
    let refuse = |status, words: &str| Err(Box::new(problem(status, words)));
    let (hash, worker) = allowed(shared, headers, hash)?;
    let Some(length) = length else {
        return refuse(StatusCode::LENGTH_REQUIRED, "the request must say how long its body is");
    };
    if length > CHUNK {
        let words = format!("a piece may be at most {CHUNK} bytes long, this one has {length}");
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, &words);
    }
    let Some(Piece { first: at, total }) = content_range(headers, length) else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "Content-Range must read `bytes FIRST-LAST/TOTAL` and fit the length of the body",
        );
    };
    let busy = |status, words| Box::new(later(status, words, AGAIN));
    let of_worker = match worker {
        None => None,
        Some(worker) if !shared.hub.may_upload(worker, length) => {
            return refuse(
                StatusCode::FORBIDDEN,
                "nothing is expected of this worker before its next step or round",
            );
        }
        Some(worker) => {
            let words = "this worker sends as many pieces at a time as it may; wait for one to arrive";
            Some(shared.hub.piece(worker).ok_or_else(|| busy(StatusCode::TOO_MANY_REQUESTS, words))?)
        }
    };
    let words = "too much is being uploaded at the moment; try again later";
    let room = shared.uploads.clone().try_acquire_many_owned(length.div_ceil(1024) as u32);
    let room = room.map_err(|_| busy(StatusCode::SERVICE_UNAVAILABLE, words))?;
    Ok(Expected { hash, worker, at, total, length, _room: (room, of_worker) })
}

/// Where the body belongs; without the header it is the whole blob.
fn content_range(headers: &HeaderMap, length: u64) -> Option<Piece> {
    match headers.get(header::CONTENT_RANGE) {
        Some(text) => sent(text.to_str().ok()?, length),
        None => Some(Piece { first: 0, total: length }),
    }
}

async fn download(State(shared): State<Arc<Shared>>, Path(hash): Path<String>, request: Request) -> Response {
    let permit = match shared.limits.take(asker(&request), Held::Transfer) {
        Ok(permit) => permit,
        Err(refused) => return refused.answer(),
    };
    let headers = request.headers();
    let (hash, worker) = match allowed(&shared, headers, &hash) {
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
    let length = range.end - range.start;
    // What cannot be read at all is said in words; later it can only be cut off.
    let first = match shared.blobs.read(hash, range.start..range.end.min(range.start + PIECE)).await {
        Ok(bytes) => bytes,
        Err(e) => return failed(&e),
    };
    if let Some(worker) = worker {
        shared.hub.count_down(worker, length);
    }
    let body = match length > PIECE {
        true => Body::from_stream(pieces(shared, hash, first, range, permit)),
        false => Body::from(first),
    };
    let mut response = Response::new(body);
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    fields.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
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

/// The bytes of a range, of which the first have been read, as fast as somebody takes them.
fn pieces<P>(
    shared: Arc<Shared>,
    hash: BlobHash,
    first: Bytes,
    range: Range<u64>,
    permit: P,
) -> impl Stream<Item = Result<Bytes, io::Error>> {
    let at = range.start + first.len() as u64;
    let rest = stream::unfold((shared, at, permit), move |(shared, at, permit)| async move {
        if at >= range.end {
            return None;
        }
        let end = range.end.min(at + PIECE);
        let piece = shared.blobs.read(hash, at..end).await.map_err(io::Error::other);
        // After an error the body ends short, which its reader sees.
        let next = if piece.is_ok() { end } else { range.end };
        Some((piece, (shared, next, permit)))
    });
    stream::once(std::future::ready(Ok(first))).chain(rest)
}
