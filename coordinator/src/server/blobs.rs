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

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::put,
};
use protocol::{
    blob::{BlobHash, CHUNK, NotABlobHash},
    worker_id::WorkerId,
};

use super::{
    Shared,
    answers::{bearer, problem},
    ranges::{Piece, requested, sent},
};
use crate::storage::blob_store::BlobError;

/// When a request that the disk could not serve may be tried again.
const RETRY_AFTER_SECONDS: u64 = 5;
/// Where the next piece of an upload must begin.
const UPLOAD_OFFSET: &str = "upload-offset";

pub(super) fn routes() -> Router<Arc<Shared>> {
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
    let mut response = problem(status, &error.to_string());
    if matches!(error, BlobError::Store(_) | BlobError::TooMany) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    }
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
    let Some(Piece { first: at, total }) = content_range(&headers, bytes.len() as u64) else {
        return problem(
            StatusCode::BAD_REQUEST,
            "Content-Range must read `bytes FIRST-LAST/TOTAL` and fit the length of the body",
        );
    };
    if let Some(worker) = worker {
        if !shared.hub.may_upload(worker) {
            return problem(StatusCode::FORBIDDEN, "nothing is expected of this worker yet");
        }
        shared.hub.count_up(worker, bytes.len() as u64);
    }
    match shared.blobs.piece(worker, hash, at, total, bytes).await {
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

/// Where the body belongs; without the header it is the whole blob.
fn content_range(headers: &HeaderMap, length: u64) -> Option<Piece> {
    match headers.get(header::CONTENT_RANGE) {
        Some(text) => sent(text.to_str().ok()?, length),
        None => Some(Piece { first: 0, total: length }),
    }
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
