//! Reaching the parts of the browser that web-sys has no stable binding for.

use js_sys::{Function, Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

/// The window; a page always has one.
pub fn window() -> web_sys::Window {
    leptos::prelude::window()
}

/// `object.name`, None if it is not there.
pub fn get(object: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(object, &JsValue::from_str(name))
        .ok()
        .filter(|value| !value.is_undefined() && !value.is_null())
}

pub fn text(object: &JsValue, name: &str) -> Option<String> {
    get(object, name)?.as_string().filter(|text| !text.is_empty())
}

/// `object.name(argument)`.
pub fn call(object: &JsValue, name: &str, argument: Option<&JsValue>) -> Option<JsValue> {
    let function: Function = get(object, name)?.dyn_into().ok()?;
    match argument {
        Some(argument) => function.call1(object, argument).ok(),
        None => function.call0(object).ok(),
    }
}

/// `await object.name(argument)`; the error is the browser's words.
pub async fn call_async(object: &JsValue, name: &str, argument: Option<&JsValue>) -> Result<JsValue, String> {
    let promise = call(object, name, argument).ok_or_else(|| format!("this browser has no {name}"))?;
    let promise: Promise = promise.dyn_into().map_err(|_| format!("{name} gave no promise"))?;
    JsFuture::from(promise).await.map_err(|error| words(&error))
}

/// What an exception says.
pub fn words(error: &JsValue) -> String {
    text(error, "message").or_else(|| error.as_string()).unwrap_or_else(|| "no reason was given".to_owned())
}
