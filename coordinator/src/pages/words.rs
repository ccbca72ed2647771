//! Answers that are not files, in words.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

/// The pages were not there when this binary was compiled.
pub(super) fn built_without_pages() -> Response {
    page(
        StatusCode::OK,
        "Cohort is running, without its pages",
        "This coordinator was built without the web pages, so there is nothing to join from a browser here. \
         In the Cohort repository, run <code>cargo xtask run</code>: it builds the pages and a coordinator that \
         contains them.",
    )
}

pub(super) fn not_found(path: &str) -> Response {
    if path.starts_with("/v1/") {
        return error(StatusCode::NOT_FOUND, "there is nothing at this address of the API");
    }
    // As many folders up as the address is deep: a proxy may have put a path before it.
    let start = format!("./{}", "../".repeat(path.matches('/').count().saturating_sub(1)));
    page(
        StatusCode::NOT_FOUND,
        "There is no such page",
        &format!("Check the address. The run itself is at <a href=\"{start}\">the start page</a>."),
    )
}

/// The page is at another address.
pub(super) fn elsewhere() -> Response {
    page(
        StatusCode::PERMANENT_REDIRECT,
        "Elsewhere",
        "This page is at the address without a slash at its end.",
    )
}

pub(super) fn method_not_allowed() -> Response {
    error(StatusCode::METHOD_NOT_ALLOWED, "this address can only be read")
}

fn page(status: StatusCode, title: &str, words: &str) -> Response {
    let html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title></head>\
         <body><main><h1>{title}</h1><p>{words}</p></main></body></html>\n"
    );
    answer(status, "text/html; charset=utf-8", html)
}

/// The form of every refusal of the API.
fn error(status: StatusCode, words: &str) -> Response {
    answer(status, "application/json", format!("{{\"error\":\"{words}\"}}"))
}

fn answer(status: StatusCode, mime: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(mime));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
