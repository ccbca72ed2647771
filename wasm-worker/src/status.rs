//! How this tab is: its memory, and how hard its device is at work.

use std::cell::Cell;

use js_sys::{Function, Object, Reflect, WebAssembly};
use protocol::message::{DeviceStatus, Pressure};
use wasm_bindgen::{JsCast, JsValue, prelude::Closure};

use crate::js;

/// Milliseconds between two looks at the pressure.
const INTERVAL: f64 = 2000.0;

thread_local! {
    /// As last told by the browser.
    static PRESSURE: Cell<Option<Pressure>> = const { Cell::new(None) };
}

/// As it is now.
pub(crate) fn now() -> DeviceStatus {
    let memory: WebAssembly::Memory = wasm_bindgen::memory().unchecked_into();
    let buffer: js_sys::ArrayBuffer = memory.buffer().unchecked_into();
    DeviceStatus { memory_bytes: buffer.byte_length().into(), pressure: PRESSURE.get() }
}

/// Listen to the Compute Pressure API, where the browser has it and the page is secure.
pub(crate) fn observe_pressure() {
    let Some(class) = js::get(&js_sys::global(), "PressureObserver") else { return };
    let heard = Closure::<dyn FnMut(JsValue)>::new(|records: JsValue| {
        let records: js_sys::Array = records.unchecked_into();
        let state =
            records.iter().last().and_then(|record| js::get(&record, "state")).and_then(|s| s.as_string());
        PRESSURE.set(match state.as_deref() {
            Some("nominal") => Some(Pressure::Nominal),
            Some("fair") => Some(Pressure::Fair),
            Some("serious") => Some(Pressure::Serious),
            Some("critical") => Some(Pressure::Critical),
            _ => None,
        });
    });
    let class: Function = class.unchecked_into();
    let Ok(observer) = Reflect::construct(&class, &js_sys::Array::of1(heard.as_ref())) else { return };
    heard.forget();
    let options = Object::new();
    let _ = Reflect::set(&options, &"sampleInterval".into(), &INTERVAL.into());
    let Ok(observe) = Reflect::get(&observer, &"observe".into()) else { return };
    let observe: Function = observe.unchecked_into();
    wasm_bindgen_futures::spawn_local(async move {
        // Refused where the page may not know: then there is no pressure to tell.
        if let Ok(promise) = observe.call2(&observer, &"cpu".into(), &options) {
            let _ = wasm_bindgen_futures::JsFuture::from(js_sys::Promise::from(promise)).await;
        }
    });
}
