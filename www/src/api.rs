//! The coordinator's HTTP interface.

use protocol::view::{CurvePoint, RunView};
use serde::{Deserialize, de::DeserializeOwned};
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::JsFuture;
use web_sys::{Request, RequestInit, Response};

use crate::browser::js::{self, window};

pub const EVENTS: &str = "/v1/run/events";

/// What an organizer can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Start,
    Pause,
    Stop,
    Remove(u64),
}

impl Order {
    fn path(self) -> String {
        match self {
            Order::Start => "/v1/run/start".to_owned(),
            Order::Pause => "/v1/run/pause".to_owned(),
            Order::Stop => "/v1/run/stop".to_owned(),
            Order::Remove(worker) => format!("/v1/workers/{worker}/remove"),
        }
    }
}

pub async fn run() -> Result<RunView, String> {
    get("/v1/run").await
}

/// The points after this step.
pub async fn curve(after: u64) -> Result<Vec<CurvePoint>, String> {
    get(&format!("/v1/run/curve?after={after}")).await
}

/// Carries out an order; the error is for a person to read.
pub async fn give(order: Order, token: &str) -> Result<(), String> {
    let options = RequestInit::new();
    options.set_method("POST");
    let request =
        Request::new_with_str_and_init(&order.path(), &options).map_err(|error| js::words(&error))?;
    let _ = request.headers().set("authorization", &format!("Bearer {token}"));
    let response = send(&request).await?;
    if response.ok() { Ok(()) } else { Err(refusal(&response).await) }
}

async fn get<T: DeserializeOwned>(path: &str) -> Result<T, String> {
    let request = Request::new_with_str(path).map_err(|error| js::words(&error))?;
    let response = send(&request).await?;
    if !response.ok() {
        return Err(refusal(&response).await);
    }
    let text = body(&response).await?;
    serde_json::from_str(&text).map_err(|_| {
        "The coordinator's answer could not be read. Reload the page: it may be of another version."
            .to_owned()
    })
}

async fn send(request: &Request) -> Result<Response, String> {
    let unreachable = |_| "The coordinator cannot be reached.".to_owned();
    let response = JsFuture::from(window().fetch_with_request(request)).await.map_err(unreachable)?;
    response.dyn_into().map_err(unreachable)
}

async fn body(response: &Response) -> Result<String, String> {
    let promise = response.text().map_err(|error| js::words(&error))?;
    let text = JsFuture::from(promise).await.map_err(|error| js::words(&error))?;
    Ok(text.as_string().unwrap_or_default())
}

/// The words of `{ "error": "words" }`, or something about the status.
async fn refusal(response: &Response) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    let text = body(response).await.unwrap_or_default();
    match serde_json::from_str::<Refusal>(&text) {
        Ok(refusal) => crate::words::sentence(&refusal.error),
        Err(_) if matches!(response.status(), 401 | 403) => {
            "The coordinator does not accept this organizer's link any more. Use the newest one it printed."
                .to_owned()
        }
        Err(_) => format!("The coordinator answered with status {} and no words.", response.status()),
    }
}
