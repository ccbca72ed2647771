//! Reaching the parts of the browser that web-sys has no stable binding for.

use js_sys::{Function, Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

/// The window; a page always has one.
pub(crate) fn window() -> web_sys::Window {
    leptos::prelude::window()
}

/// `object.name`, None if it is not there.
pub(crate) fn get(object: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(object, &JsValue::from_str(name))
        .ok()
        .filter(|value| !value.is_undefined() && !value.is_null())
}

/// `object.name` where it is a text that is not empty.
pub(crate) fn text(object: &JsValue, name: &str) -> Option<String> {
    get(object, name)?.as_string().filter(|text| !text.is_empty())
}

/// `object.name(argument)`.
pub(crate) fn call(object: &JsValue, name: &str, argument: Option<&JsValue>) -> Option<JsValue> {
    let function: Function = get(object, name)?.dyn_into().ok()?;
    match argument {
        Some(argument) => function.call1(object, argument).ok(),
        None => function.call0(object).ok(),
    }
}

/// `await object.name(argument)`; the error is the exception.
pub(crate) async fn try_call_async(
    object: &JsValue,
    name: &str,
    argument: Option<&JsValue>,
) -> Result<JsValue, JsValue> {
    let promise = call(object, name, argument).ok_or(JsValue::UNDEFINED)?;
    JsFuture::from(promise.dyn_into::<Promise>()?).await
}
