//! What all handlers of requests use: the bearer token, and an answer in words.

use axum::{
    Json,
    http::{HeaderMap, StatusCode, header},
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
