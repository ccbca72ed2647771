//! The headers that keep a page from loading or embedding anything but what this coordinator serves.

use axum::{
    http::{
        HeaderMap, HeaderValue,
        header::{self, HeaderName},
    },
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

/// Adds the security headers; `policy` is the one of index.html, None where no script may run.
pub(crate) fn harden(mut response: Response, policy: Option<&HeaderValue>) -> Response {
    let headers = response.headers_mut();
    let policy = policy.cloned().unwrap_or_else(|| content_security(""));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    add(headers, "cross-origin-opener-policy", "same-origin");
    add(headers, "cross-origin-embedder-policy", "require-corp");
    add(headers, "cross-origin-resource-policy", "same-origin");
    add(headers, "x-content-type-options", "nosniff");
    // The organizer's token is in the fragment, which is never sent; an invitation's path is nobody's business.
    add(headers, "referrer-policy", "no-referrer");
    response
}

fn add(headers: &mut HeaderMap, name: &'static str, value: &'static str) {
    headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
}

/// The policy for a page with these inline scripts and no others.
///
/// It holds for the worker's files too: a worker obeys the policy of its own response. `ws:` and `wss:` are
/// spelled out since not every browser counts them as `'self'`.
pub(super) fn content_security(html: &str) -> HeaderValue {
    let hashes: String = inline_scripts(html)
        .map(|script| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(script.as_bytes()))))
        .collect();
    let policy = format!(
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'{hashes}; worker-src 'self'; \
         connect-src 'self' ws: wss:; style-src 'self'; img-src 'self' data:; font-src 'self'; \
         manifest-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// The text of each script element that has no `src`, as the browser hashes it. Made for www/index.html, not
/// for any HTML.
fn inline_scripts(html: &str) -> impl Iterator<Item = &str> {
    html.split("<script").skip(1).filter_map(|rest| {
        let (attributes, rest) = rest.split_once('>')?;
        let (text, _) = rest.split_once("</script")?;
        (!attributes.contains("src=") && !text.is_empty()).then_some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_scripts_are_named_by_hash() {
        let html = "<script src=\"/a.js\"></script><script type=\"module\">alert('hi')</script><p>";
        assert_eq!(inline_scripts(html).collect::<Vec<_>>(), ["alert('hi')"]);
        let policy = content_security("<script>alert('Hello, world.');</script>");
        // The example of the CSP specification.
        let hash = "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='";
        assert!(policy.to_str().unwrap().contains(hash), "{policy:?}");
    }

    #[test]
    fn no_page_no_inline_script() {
        assert!(!content_security("").to_str().unwrap().contains("sha256"));
    }
}
