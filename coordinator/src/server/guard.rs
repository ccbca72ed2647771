//! Host and Origin of every request: another site's page must not reach the coordinator through a visitor's browser,
//! neither by a request across sites nor by a name that it rebinds to this address.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    middleware::Next,
    response::Response,
};

use super::{Shared, answers::problem};
use crate::address::Address;

/// Lets a request through that names this coordinator as its host and comes from its own pages, or from no page.
pub(super) async fn same_host(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    match check(request.headers(), request.uri(), shared.hosts.as_deref()) {
        Ok(()) => next.run(request).await,
        Err(words) => problem(StatusCode::FORBIDDEN, words),
    }
}

/// Whose request it is. One that did not come over a connection is this computer's own.
pub(super) fn asker(request: &Request) -> Address {
    request.extensions().get().copied().unwrap_or(Address::Local)
}

/// The host by which a request reaches this coordinator, with its port.
///
/// # Errors
/// Why there is none, in words.
pub(super) fn host_of<'a>(
    headers: &'a HeaderMap,
    uri: &'a Uri,
    allowed: Option<&[String]>,
) -> Result<&'a str, &'static str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).or(uri.authority().map(|a| a.as_str()));
    let Some(host) = host.filter(|_| hosts.next().is_none()) else {
        return Err("the request must name its host once");
    };
    // It may be written into a page or a link.
    if !host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c)) {
        return Err("the request must name its host by its name or address");
    }
    if !is_ours(name_of(host), allowed) {
        return Err(
            "this coordinator is not reached by that host name; use its address, or name it with --host",
        );
    }
    Ok(host)
}

/// # Errors
/// Why a request is not answered, in words.
fn check(headers: &HeaderMap, uri: &Uri, allowed: Option<&[String]>) -> Result<(), &'static str> {
    let host = host_of(headers, uri, allowed)?;
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        // A page may only talk to the coordinator that it came from.
        if !origin.is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host)) {
            return Err("only this coordinator's own pages may do this");
        }
    }
    // Browsers that send it tell a request across sites even without an Origin.
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
        && headers.get("sec-fetch-mode").is_some_and(|mode| mode != "navigate")
    {
        return Err("only this coordinator's own pages may do this");
    }
    Ok(())
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Addresses cannot be rebound, and neither can `localhost`; other names must have been given.
fn is_ours(name: &str, allowed: Option<&[String]>) -> bool {
    let Some(allowed) = allowed else { return true };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || allowed.iter().any(|host| host.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(fields: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        check(&headers, &Uri::from_static("/v1/run"), Some(&["cohort.example".into()])).is_ok()
    }

    #[test]
    fn requests_of_our_own_pages_and_of_programs_pass() {
        assert!(passes(&[("host", "127.0.0.1:8080")]));
        assert!(passes(&[("host", "[::1]:8080"), ("origin", "http://[::1]:8080")]));
        assert!(passes(&[("host", "localhost:8080"), ("origin", "http://localhost:8080")]));
        assert!(passes(&[("host", "cohort.example"), ("origin", "https://cohort.example")]));
        assert!(passes(&[
            ("host", "192.168.1.7:8080"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate")
        ]));
    }

    #[test]
    fn requests_of_other_sites_and_rebound_names_do_not() {
        assert!(!passes(&[]));
        assert!(!passes(&[("host", "evil.example")]));
        assert!(!passes(&[("host", "evil.example:8080"), ("origin", "http://evil.example:8080")]));
        assert!(!passes(&[("host", "127.0.0.1:8080"), ("host", "evil.example")]));
        assert!(!passes(&[("host", "127.0.0.1:8080"), ("origin", "http://evil.example")]));
        assert!(!passes(&[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:9090")]));
        assert!(!passes(&[("host", "127.0.0.1:8080"), ("origin", "null")]));
        assert!(!passes(&[
            ("host", "127.0.0.1:8080"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "cors")
        ]));
    }
}
