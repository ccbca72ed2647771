//! Serves the pages that are embedded in the binary: nothing comes from anywhere else.
//!
//! ```text
//! /  /organizer  /watch  /playground   index.html; the page itself tells its routes apart
//! /www-<hash>_bg.wasm ...    files of the build
//! anything else              404 in words
//! ```

mod assets;
mod negotiate;
mod policy;
mod words;

pub(crate) use policy::harden;

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::Response,
};

use assets::{Asset, Assets};
use negotiate::{Coding, accepted_coding, already_has};

/// Routes of the single-page app; all of them are index.html.
const PAGES: [&str; 4] = ["/", "/organizer", "/watch", "/playground"];

/// The pages as the fallback of the coordinator's router: whatever the API does not answer comes here.
pub fn router() -> Router {
    Router::new().fallback(serve)
}

/// Whether this binary was built with pages.
pub fn embedded() -> bool {
    !assets::TABLE.is_empty()
}

async fn serve(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    if method != Method::GET && method != Method::HEAD {
        let mut response = words::method_not_allowed();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return policy::harden(response, None);
    }
    if let Some(location) = without_slash(uri.path()).and_then(|place| HeaderValue::try_from(place).ok()) {
        let mut response = words::elsewhere();
        response.headers_mut().insert(header::LOCATION, location);
        return policy::harden(response, None);
    }
    let assets = Assets::get();
    let asset = match page(uri.path()) {
        Some(_) if !embedded() => return policy::harden(words::built_without_pages(), None),
        Some(index) => assets.find(index),
        None => assets.find(uri.path()),
    };
    let response = match asset {
        Some(asset) => send(asset, &method, &headers),
        None => words::not_found(uri.path()),
    };
    policy::harden(response, assets.index_policy())
}

/// The file behind a route of the app.
fn page(path: &str) -> Option<&'static str> {
    PAGES.contains(&path).then_some("/index.html")
}

/// Where a route of the app is that was asked for with a slash at its end: its files would be looked for below it.
fn without_slash(path: &str) -> Option<String> {
    let route = path.strip_suffix('/').filter(|route| PAGES.contains(route))?;
    Some(format!("..{route}"))
}

fn send(asset: &'static Asset, method: &Method, headers: &HeaderMap) -> Response {
    let coding = accepted_coding(headers, asset.br.is_some(), asset.gz.is_some());
    let (bytes, etag) = match coding {
        Coding::Brotli => (asset.br.unwrap_or(asset.plain), &asset.etag_br),
        Coding::Gzip => (asset.gz.unwrap_or(asset.plain), &asset.etag_gz),
        Coding::Plain => (asset.plain, &asset.etag),
    };
    let mut response = Response::new(Body::empty());
    let reply = response.headers_mut();
    reply.insert(header::ETAG, etag.clone());
    reply.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    reply.insert(header::CACHE_CONTROL, HeaderValue::from_static(asset.cache_control));
    if already_has(headers, etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    reply.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.mime));
    reply.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    if let Some(name) = coding.name() {
        reply.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    if method == Method::GET {
        *response.body_mut() = Body::from(Bytes::from_static(bytes));
    }
    response
}
