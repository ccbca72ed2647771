//! Asking the coordinator for a text, and reading it as it comes.

use leptos::prelude::*;
use serde_json::{Value, json};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, ReadableStreamDefaultReader, Request, RequestInit, Response};

use super::js::{self, window};
use crate::{
    state::writing::{Stage, Writing},
    text::{pages, pages::ApiError, playground as text},
};

/// What to write.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    /// The text to continue.
    pub(crate) prompt: String,
    /// Tokens to add.
    pub(crate) length: u32,
    /// See the coordinator's documentation of the request.
    pub(crate) temperature: f64,
    pub(crate) top_p: f64,
    pub(crate) seed: Option<u64>,
    /// Tokens of one sweep, in block mode.
    pub(crate) chunk: u32,
    /// The organizer's, where this page has it.
    pub(crate) token: Option<String>,
}

/// Writes into `writing` until the text is whole, fails, or `abort` ends it.
pub(crate) async fn write(wish: Wish, abort: &AbortController, writing: RwSignal<Writing>) {
    let result = read(wish, abort, writing).await;
    writing.update(|writing| match result {
        // Whoever stopped it has said so.
        Ok(()) => writing.ended(text::BROKEN),
        Err(words) => writing.ended(&words),
    });
}

/// # Errors
/// Why there is no text, in words.
async fn read(wish: Wish, abort: &AbortController, writing: RwSignal<Writing>) -> Result<(), String> {
    let unreachable = |_: JsValue| pages::error(&ApiError::Unreachable);
    let request = request(&wish, abort).map_err(unreachable)?;
    let response = JsFuture::from(window().fetch_with_request(&request)).await.map_err(unreachable)?;
    let response: Response = response.dyn_into().map_err(unreachable)?;
    if !response.ok() {
        return Err(refusal(&response).await);
    }
    let body = response.body().ok_or_else(|| pages::error(&ApiError::Unreadable))?;
    let reader: ReadableStreamDefaultReader = body.get_reader().dyn_into().map_err(|_| text::BROKEN)?;
    loop {
        let piece = JsFuture::from(reader.read()).await.map_err(|_| text::BROKEN)?;
        if js::get(&piece, "done").is_none_or(|done| done.is_truthy()) {
            return Ok(());
        }
        let Some(bytes) = js::get(&piece, "value") else { continue };
        let bytes = js_sys::Uint8Array::new(&bytes).to_vec();
        writing.update(|writing| writing.hear(&bytes));
        if !writing.with_untracked(|writing| writing.stage.is_under_way()) {
            return Ok(());
        }
    }
}

fn request(wish: &Wish, abort: &AbortController) -> Result<Request, JsValue> {
    let body = json!({
        "prompt": wish.prompt,
        "max_tokens": wish.length,
        "temperature": wish.temperature,
        "top_p": wish.top_p,
        "seed": wish.seed,
        "chunk": wish.chunk,
        "stream": true,
    });
    let options = RequestInit::new();
    options.set_method("POST");
    options.set_body(&JsValue::from_str(&body.to_string()));
    options.set_signal(Some(&abort.signal()));
    let request = Request::new_with_str_and_init("./v1/completions", &options)?;
    request.headers().set("content-type", "application/json")?;
    if let Some(token) = &wish.token {
        // A token with characters that no header may have is wrong, and the coordinator will say so.
        let _ = request.headers().set("authorization", &format!("Bearer {token}"));
    }
    Ok(request)
}

/// The words of `{ "error": { "message": "words" } }`, and when to ask again.
async fn refusal(response: &Response) -> String {
    let status = pages::error(&ApiError::Status(response.status()));
    let Ok(promise) = response.text() else { return status };
    let body = JsFuture::from(promise).await.ok().and_then(|body| body.as_string()).unwrap_or_default();
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let after = response.headers().get("retry-after").ok().flatten().and_then(|after| after.parse().ok());
    let error = &body["error"];
    // Refusals that are not of texts have their words there directly.
    match error["message"].as_str().or(error.as_str()) {
        Some(words) => text::refused(words, after),
        None => status,
    }
}

/// Ends a text before it is whole.
pub(crate) fn stop(abort: &AbortController, writing: RwSignal<Writing>) {
    writing.update(|writing| {
        if writing.stage.is_under_way() {
            writing.stage = Stage::Stopped;
        }
    });
    abort.abort();
}
