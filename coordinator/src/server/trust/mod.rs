//! What is answered at a TLS port without TLS: the way to the same address with it, and for a certificate of the run's own
//! authority a page that says what browsers will warn of, and the authority to install.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use super::{answers::problem, guard::host_of};
use crate::pages::harden;

const PAGE: &str = include_str!("trust.html");
const STYLE: &str = include_str!("trust.css");

/// The run's own authority, as devices are given it.
#[derive(Debug)]
pub(crate) struct OwnAuthority {
    /// Its certificate, as PEM.
    pub(crate) pem: String,
    /// SHA-256 of the certificate, as people compare it.
    pub(crate) fingerprint: String,
}

/// The page about the authority, and what belongs to it. Answered with and without TLS.
pub(crate) fn routes(authority: OwnAuthority) -> Router {
    Router::new()
        .route("/trust", get(page))
        .route("/trust.css", get(|| async { file("text/css; charset=utf-8", STYLE.into()) }))
        .route("/trust/authority.crt", get(certificate))
        .with_state(Arc::new(authority))
}

/// Leads every request to the same address with TLS; `hosts` as in [`super::Shared`].
pub(crate) fn to_tls(hosts: Option<Vec<String>>) -> Router {
    Router::new().fallback(move |request: Request| async move { redirect(&request, hosts.as_deref()) })
}

fn redirect(request: &Request, hosts: Option<&[String]>) -> Response {
    let host = match host_of(request.headers(), request.uri(), hosts) {
        Ok(host) => host,
        Err(words) => return problem(StatusCode::FORBIDDEN, words),
    };
    let place = request.uri().path_and_query().map_or("/", |place| place.as_str());
    let words = format!("this coordinator is reached by TLS: https://{host}{place}");
    let mut response = problem(StatusCode::PERMANENT_REDIRECT, &words);
    if let Ok(location) = HeaderValue::from_str(&format!("https://{host}{place}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    // The port may be without TLS again tomorrow.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn page(State(authority): State<Arc<OwnAuthority>>, request: Request) -> Response {
    // By its own name only: this page needs none other, and writes the name into itself.
    let host = match host_of(request.headers(), request.uri(), None) {
        Ok(host) => host,
        Err(words) => return problem(StatusCode::FORBIDDEN, words),
    };
    let page = PAGE.replace("{{host}}", host).replace("{{fingerprint}}", &authority.fingerprint);
    file("text/html; charset=utf-8", page)
}

async fn certificate(State(authority): State<Arc<OwnAuthority>>) -> Response {
    // Devices offer to install what comes as this type.
    let mut response = file("application/x-x509-ca-cert", authority.pem.clone());
    let name = HeaderValue::from_static("attachment; filename=\"cohort-authority.crt\"");
    response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    response
}

fn file(kind: &'static str, body: String) -> Response {
    let fields = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")];
    let mut response = harden((fields, body).into_response(), None);
    // Browsers complain of it on pages that come without TLS, and there is nothing here to keep apart.
    response.headers_mut().remove("cross-origin-opener-policy");
    response
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt;

    use super::*;

    async fn ask(router: Router, path: &str, host: &str) -> (StatusCode, String, String) {
        let request = Request::get(path).header("host", host).body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let location = response.headers().get("location").map(|l| l.to_str().unwrap().to_owned());
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, location.unwrap_or_default(), String::from_utf8(body.to_vec()).unwrap())
    }

    fn all() -> Router {
        let authority = OwnAuthority { pem: "the certificate".into(), fingerprint: "AB:CD".into() };
        routes(authority).merge(to_tls(Some(vec!["cohort.example".into()])))
    }

    #[tokio::test]
    async fn without_tls_a_request_is_led_to_the_same_place_with_it() {
        for (path, host) in [("/", "192.168.1.7:8080"), ("/v1/run?a=b", "cohort.example")] {
            let (status, location, words) = ask(all(), path, host).await;
            assert_eq!(status, StatusCode::PERMANENT_REDIRECT);
            assert_eq!(location, format!("https://{host}{path}"));
            assert!(words.contains(&location), "{words}");
        }
        let (status, location, _) = ask(all(), "/", "evil.example").await;
        assert_eq!((status, location.as_str()), (StatusCode::FORBIDDEN, ""));
    }

    #[tokio::test]
    async fn the_page_names_the_address_and_the_authority() {
        let (status, _, page) = ask(all(), "/trust", "192.168.1.7:8080").await;
        assert_eq!(status, StatusCode::OK);
        assert!(page.contains("href=\"https://192.168.1.7:8080/\""), "{page}");
        assert!(page.contains("AB:CD") && !page.contains("{{"), "{page}");
        let (_, _, certificate) = ask(all(), "/trust/authority.crt", "192.168.1.7:8080").await;
        assert_eq!(certificate, "the certificate");
        let (status, ..) = ask(all(), "/trust", "a\"><script>").await;
        assert_eq!(status, StatusCode::FORBIDDEN);
    }
}
