//! The coordinator's HTTP interface.

use protocol::{
    serving::{Samples, ServingView},
    view::{CurvePoint, RunView},
};
use serde::{Deserialize, de::DeserializeOwned};
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, Request, RequestInit, Response};

use super::js::window;
use crate::text::{organizer::Order, pages::ApiError};

/// Milliseconds for an answer whose size does not grow with the run. The question about a silent coordinator must be
/// answered before the page calls it silent.
const SHORT: u32 = 2_400;

/// Milliseconds for everything else.
const LONG: u32 = 30_000;

/// The run as it is now.
///
/// # Errors
/// When no answer comes in time, or none that can be read.
pub(crate) async fn run() -> Result<RunView, ApiError> {
    get("./v1/run", SHORT).await
}

/// The points of the curve after this step.
///
/// # Errors
/// When no answer comes in time, or none that can be read.
pub(crate) async fn curve(after: u64) -> Result<Vec<CurvePoint>, ApiError> {
    get(&format!("./v1/run/curve?after={after}"), LONG).await
}

/// Whether texts can be asked for, and of what model.
///
/// # Errors
/// As for [`run`].
pub(crate) async fn serving() -> Result<ServingView, ApiError> {
    get("./v1/serving", SHORT).await
}

/// What the model wrote at several ages.
///
/// # Errors
/// As for [`curve`].
pub(crate) async fn samples() -> Result<Samples, ApiError> {
    get("./v1/samples", LONG).await
}

/// Whether the coordinator accepts an organizer's token.
///
/// # Errors
/// When it does not, or does not answer.
pub(crate) async fn check(token: &str) -> Result<(), ApiError> {
    with_token("GET", "./v1/organizer", token).await
}

/// Hands an order to the coordinator.
///
/// # Errors
/// When it refuses the order or the token, or does not answer.
pub(crate) async fn give(order: Order, token: &str) -> Result<(), ApiError> {
    let path = match order {
        Order::Start => "./v1/run/start".to_owned(),
        Order::Pause => "./v1/run/pause".to_owned(),
        Order::Stop => "./v1/run/stop".to_owned(),
        Order::Remove(worker) => format!("./v1/workers/{worker}/remove"),
        Order::Serve(true) => "./v1/serving/on".to_owned(),
        Order::Serve(false) => "./v1/serving/off".to_owned(),
    };
    with_token("POST", &path, token).await
}

async fn with_token(method: &str, path: &str, token: &str) -> Result<(), ApiError> {
    let request = request(method, path, LONG)?;
    // A token with characters that no header may have is wrong, and the coordinator will say so.
    let _ = request.headers().set("authorization", &format!("Bearer {token}"));
    let response = send(&request).await?;
    if response.ok() { Ok(()) } else { Err(refusal(&response).await) }
}

async fn get<T: DeserializeOwned>(path: &str, milliseconds: u32) -> Result<T, ApiError> {
    let response = send(&request("GET", path, milliseconds)?).await?;
    if !response.ok() {
        return Err(refusal(&response).await);
    }
    serde_json::from_str(&body(&response).await?).map_err(|_| ApiError::Unreadable)
}

fn request(method: &str, path: &str, milliseconds: u32) -> Result<Request, ApiError> {
    let options = RequestInit::new();
    options.set_method(method);
    options.set_signal(Some(&AbortSignal::timeout_with_u32(milliseconds)));
    Request::new_with_str_and_init(path, &options).map_err(|_| ApiError::Unreachable)
}

async fn send(request: &Request) -> Result<Response, ApiError> {
    let response = JsFuture::from(window().fetch_with_request(request)).await;
    response.and_then(JsCast::dyn_into).map_err(|_| ApiError::Unreachable)
}

async fn body(response: &Response) -> Result<String, ApiError> {
    let promise = response.text().map_err(|_| ApiError::Unreachable)?;
    let text = JsFuture::from(promise).await.map_err(|_| ApiError::Unreachable)?;
    Ok(text.as_string().unwrap_or_default())
}

/// The words of `{ "error": "words" }`, or the status.
async fn refusal(response: &Response) -> ApiError {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    if matches!(response.status(), 401 | 403) {
        return ApiError::Unauthorized;
    }
    let text = body(response).await.unwrap_or_default();
    match serde_json::from_str::<Refusal>(&text) {
        Ok(refusal) => ApiError::Refused(refusal.error),
        Err(_) => ApiError::Status(response.status()),
    }
}
