//! The pages as the coordinator serves them. Holds in a binary with built pages and in one without.
#![allow(clippy::unwrap_used)]

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, Method, Request, Response, StatusCode, header},
};
use coordinator::pages;
use tower::ServiceExt;

async fn ask(method: Method, path: &str, headers: &[(header::HeaderName, &str)]) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    pages::router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

async fn get(path: &str) -> Response<Body> {
    ask(Method::GET, path, &[]).await
}

async fn text(response: Response<Body>) -> String {
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn value(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap().to_owned()
}

/// Addresses of the scripts and modules that a page names.
fn named_files(html: &str) -> Vec<String> {
    let is_file =
        |part: &&str| part.starts_with('/') && part.contains('.') && !part.contains(['>', ' ', '\n']);
    // They are named as what lies beside the page.
    html.split(['"', '\''])
        .filter_map(|part| part.strip_prefix('.'))
        .filter(is_file)
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn every_route_of_the_app_is_the_same_page() {
    let index = text(get("/").await).await;
    for route in ["/organizer", "/watch", "/?join=1"] {
        let response = get(route).await;
        assert_eq!(response.status(), StatusCode::OK, "{route}");
        assert_eq!(value(response.headers(), "content-type"), "text/html; charset=utf-8");
        assert_eq!(text(response).await, index, "{route}");
    }
    if !pages::embedded() {
        assert!(index.contains("cargo xtask run"), "{index}");
    }
}

/// The pages' files are beside them: below a slash they would not be found.
#[tokio::test]
async fn a_slash_at_the_end_of_a_route_leads_to_the_page_whatever_a_proxy_puts_before_it() {
    let response = get("/watch/").await;
    assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
    assert_eq!(value(response.headers(), "location"), "../watch");
    assert!(text(get("/a/b/c").await).await.contains("href=\"./../../\""));
}

#[tokio::test]
async fn every_answer_is_isolated_and_strict() {
    for path in ["/", "/nothing-here", "/v1/nothing-here"] {
        let response = get(path).await;
        let headers = response.headers();
        assert_eq!(value(headers, "cross-origin-opener-policy"), "same-origin");
        assert_eq!(value(headers, "cross-origin-embedder-policy"), "require-corp");
        assert_eq!(value(headers, "cross-origin-resource-policy"), "same-origin");
        assert_eq!(value(headers, "x-content-type-options"), "nosniff");
        assert_eq!(value(headers, "referrer-policy"), "no-referrer");
        let policy = value(headers, "content-security-policy");
        for rule in
            ["default-src 'none'", "object-src 'none'", "frame-ancestors 'none'", "'wasm-unsafe-eval'"]
        {
            assert!(policy.contains(rule), "{policy}");
        }
        assert!(!policy.contains("'unsafe-inline'") && !policy.contains("'unsafe-eval'"), "{policy}");
    }
}

#[tokio::test]
async fn the_page_may_run_its_own_inline_script() {
    let response = get("/").await;
    let policy = value(response.headers(), "content-security-policy");
    let inline = text(response).await.contains("<script type=\"module\">");
    assert_eq!(inline, policy.contains("'sha256-"), "{policy}");
}

#[tokio::test]
async fn unknown_addresses_say_so() {
    let response = get("/nothing-here").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert!(text(response).await.contains("no such page"));
    let response = get("/v1/nothing-here").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert!(text(response).await.starts_with("{\"error\":"));
    let response = ask(Method::POST, "/", &[]).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(value(response.headers(), "allow"), "GET, HEAD");
}

#[tokio::test]
async fn files_are_cached_compressed_and_typed() {
    let index = text(get("/").await).await;
    let files = named_files(&index);
    assert_eq!(pages::embedded(), !files.is_empty(), "{files:?}");
    for file in files {
        let response = get(&file).await;
        assert_eq!(response.status(), StatusCode::OK, "{file}");
        let headers = response.headers().clone();
        let mime = value(&headers, "content-type");
        match file.rsplit('.').next().unwrap() {
            "wasm" => assert_eq!(mime, "application/wasm"),
            "js" => assert!(mime.starts_with("text/javascript"), "{file}: {mime}"),
            "css" => assert!(mime.starts_with("text/css"), "{file}: {mime}"),
            _ => {}
        }
        assert!(value(&headers, "cache-control").contains("immutable"), "{file} has no content hash");
        let length: usize = value(&headers, "content-length").parse().unwrap();
        let plain = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(plain.len(), length);

        let tag = value(&headers, "etag");
        let again = ask(Method::GET, &file, &[(header::IF_NONE_MATCH, &tag)]).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(to_bytes(again.into_body(), 1).await.unwrap().is_empty());

        for coding in ["br", "gzip"] {
            let packed = ask(Method::GET, &file, &[(header::ACCEPT_ENCODING, coding)]).await;
            // A quick build leaves the compressed forms out.
            if let Some(named) = packed.headers().get(header::CONTENT_ENCODING).cloned() {
                assert_eq!(named, coding);
                assert_ne!(value(packed.headers(), "etag"), tag, "one tag for two codings");
                assert!(to_bytes(packed.into_body(), usize::MAX).await.unwrap().len() < plain.len());
            }
        }
        let head = ask(Method::HEAD, &file, &[]).await;
        assert_eq!(value(head.headers(), "content-length"), length.to_string());
        assert!(to_bytes(head.into_body(), 1).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn pages_and_worker_files_are_checked_each_time() {
    if !pages::embedded() {
        return;
    }
    for path in ["/", "/index.html", "/worker_loader.js", "/worker.js", "/worker_bg.wasm"] {
        let response = get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(value(response.headers(), "cache-control"), "no-cache", "{path}");
        assert!(response.headers().contains_key(header::ETAG), "{path}");
    }
}
