//! The few things of the worker's global scope that web-sys has no stable types for.

use js_sys::{Function, Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::DedicatedWorkerGlobalScope;

pub(crate) fn worker_scope() -> DedicatedWorkerGlobalScope {
    js_sys::global().unchecked_into()
}

/// A property that is there.
pub(crate) fn get(object: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(object, &name.into()).ok().filter(|v| !v.is_undefined() && !v.is_null())
}

/// Call a method of one argument.
pub(crate) fn call(object: &JsValue, name: &str, argument: &JsValue) -> Result<JsValue, JsValue> {
    let method: Function = Reflect::get(object, &name.into())?.dyn_into()?;
    method.call1(object, argument)
}

/// Call a method that gives a promise, and wait for it.
pub(crate) async fn call_async(object: &JsValue, name: &str, argument: &JsValue) -> Result<JsValue, JsValue> {
    let promise: Promise = call(object, name, argument)?.dyn_into()?;
    JsFuture::from(promise).await
}

pub(crate) fn navigator() -> JsValue {
    worker_scope().navigator().into()
}

/// `navigator.deviceMemory` in GiB, where the browser tells it.
pub(crate) fn device_memory_gib() -> Option<f64> {
    get(&navigator(), "deviceMemory")?.as_f64()
}

/// The words of a JavaScript error.
pub(crate) fn words(error: &JsValue) -> String {
    let message = get(error, "message").and_then(|m| m.as_string());
    message.or_else(|| error.as_string()).unwrap_or_else(|| "an unknown error".into())
}
