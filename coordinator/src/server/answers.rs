//! What all handlers of requests use: the bearer token, and an answer in words.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// The bearer token of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// An answer in words.
pub(super) fn problem(status: StatusCode, words: &str) -> Response {
    (status, Json(json!({ "error": words }))).into_response()
}

/// An answer in words to a request that may be made again after a while, in whole seconds.
pub(super) fn later(status: StatusCode, words: &str, after: Duration) -> Response {
    let mut response = problem(status, words);
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    response
}
