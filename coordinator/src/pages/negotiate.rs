//! What the client accepts, and what it already has.

use axum::http::{HeaderMap, HeaderValue, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Brotli,
    Gzip,
    Plain,
}

impl Coding {
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Coding::Brotli => Some("br"),
            Coding::Gzip => Some("gzip"),
            Coding::Plain => None,
        }
    }
}

/// The smallest form that there is and that the client takes.
pub(super) fn accepted_coding(headers: &HeaderMap, br: bool, gz: bool) -> Coding {
    if br && accepts(headers, "br") {
        Coding::Brotli
    } else if gz && accepts(headers, "gzip") {
        Coding::Gzip
    } else {
        Coding::Plain
    }
}

fn accepts(headers: &HeaderMap, coding: &str) -> bool {
    let mut any = false;
    for item in items(headers, header::ACCEPT_ENCODING) {
        let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
        let weight = parameters.trim().strip_prefix("q=").map_or(1.0, |q| q.trim().parse().unwrap_or(0.0));
        if name.trim().eq_ignore_ascii_case(coding) {
            return weight > 0.0;
        }
        any |= name.trim() == "*" && weight > 0.0;
    }
    any
}

/// Whether `If-None-Match` names this tag.
pub(super) fn already_has(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    items(headers, header::IF_NONE_MATCH).any(|item| {
        let item = item.trim();
        item == "*" || item.strip_prefix("W/").unwrap_or(item).as_bytes() == etag.as_bytes()
    })
}

fn items(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn the_smallest_accepted_form_wins() {
        let coding = |value| accepted_coding(&with(header::ACCEPT_ENCODING, value), true, true);
        assert_eq!(coding("gzip, deflate, br, zstd"), Coding::Brotli);
        assert_eq!(coding("gzip;q=1.0, br;q=0"), Coding::Gzip);
        assert_eq!(coding("identity"), Coding::Plain);
        assert_eq!(coding("*"), Coding::Brotli);
        assert_eq!(coding("br;q=0, *;q=0.5"), Coding::Gzip);
        assert_eq!(accepted_coding(&HeaderMap::new(), true, true), Coding::Plain);
        assert_eq!(accepted_coding(&with(header::ACCEPT_ENCODING, "br, gzip"), false, true), Coding::Gzip);
    }

    #[test]
    fn tags_match_in_lists_and_weakly() {
        let tag = HeaderValue::from_static("\"abc-br\"");
        let has = |value| already_has(&with(header::IF_NONE_MATCH, value), &tag);
        assert!(has("\"abc-br\""));
        assert!(has("\"x\", W/\"abc-br\""));
        assert!(has("*"));
        assert!(!has("\"abc\""));
    }
}
