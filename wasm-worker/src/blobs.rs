//! Requests to the coordinator's store, over `fetch`.

use std::ops::Range;

use js_sys::{ArrayBuffer, Uint8Array};
use protocol::blob::BlobHash;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, Headers, Request, RequestInit, Response};
use worker::platform::{self, Got, Later, PlatformError, Put};

use crate::js;

/// Header that names the byte at which the next piece must begin.
const UPLOAD_OFFSET: &str = "upload-offset";

/// The store of one coordinator.
pub(crate) struct Blobs {
    coordinator: String,
}

impl Blobs {
    pub(crate) fn new(coordinator: String) -> Self {
        Self { coordinator }
    }

    fn url(&self, hash: BlobHash) -> String {
        format!("{}/v1/blobs/{hash}", self.coordinator.trim_end_matches('/'))
    }
}

fn unreachable(error: JsValue) -> PlatformError {
    PlatformError(format!("the coordinator's store cannot be reached: {}", js::words(&error)))
}

fn unexpected(status: u16) -> PlatformError {
    PlatformError(format!("the coordinator's store answered {status}"))
}

/// Whether the store asks for the same request again.
fn later(answer: &Response) -> Option<Later> {
    let after = answer.headers().get("retry-after").ok().flatten();
    Later::of(answer.status(), after.as_deref())
}

/// Aborts its request when dropped, so that one that nobody waits for any more does not go on.
struct Abort(AbortController);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One request; `header` is a name and a value beside the token.
async fn ask(
    method: &str,
    url: &str,
    token: &str,
    header: (&str, &str),
    body: Option<&[u8]>,
    abort: &Abort,
) -> Result<Response, PlatformError> {
    let request = || -> Result<Request, JsValue> {
        let headers = Headers::new()?;
        headers.set("authorization", &format!("Bearer {token}"))?;
        headers.set(header.0, header.1)?;
        let init = RequestInit::new();
        init.set_method(method);
        init.set_headers(&headers);
        init.set_signal(Some(&abort.0.signal()));
        if let Some(body) = body {
            init.set_body(&Uint8Array::from(body));
        }
        Request::new_with_str_and_init(url, &init)
    };
    let request = request().map_err(unreachable)?;
    let answer =
        JsFuture::from(js::worker_scope().fetch_with_request(&request)).await.map_err(unreachable)?;
    answer.dyn_into().map_err(unreachable)
}

impl platform::Blobs for Blobs {
    async fn get(&self, token: &str, hash: BlobHash, range: Range<u64>) -> Result<Got, PlatformError> {
        let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        let abort = Abort(AbortController::new().map_err(unreachable)?);
        let answer = ask("GET", &self.url(hash), token, ("range", &range), None, &abort).await?;
        if answer.status() != 206 {
            return later(&answer).map(Got::Later).ok_or_else(|| unexpected(answer.status()));
        }
        let buffer =
            JsFuture::from(answer.array_buffer().map_err(unreachable)?).await.map_err(unreachable)?;
        Ok(Got::Bytes(Uint8Array::new(&buffer.unchecked_into::<ArrayBuffer>()).to_vec()))
    }

    async fn put(
        &self,
        token: &str,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, PlatformError> {
        let last = first + (piece.len() as u64).saturating_sub(1);
        let range = format!("bytes {first}-{last}/{total}");
        let abort = Abort(AbortController::new().map_err(unreachable)?);
        let header = ("content-range", range.as_str());
        let answer = ask("PUT", &self.url(hash), token, header, Some(piece), &abort).await?;
        match answer.status() {
            201 => Ok(Put::Whole),
            202 => Ok(Put::More),
            413 => Ok(Put::TooLarge),
            409 => {
                let at = answer.headers().get(UPLOAD_OFFSET).ok().flatten().and_then(|v| v.parse().ok());
                at.map(Put::GoOnAt).ok_or_else(|| unexpected(409))
            }
            status => later(&answer).map(Put::Later).ok_or_else(|| unexpected(status)),
        }
    }
}
