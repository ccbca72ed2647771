//! What the browser tells about the device before anything is loaded.

use wasm_bindgen::JsValue;

use super::js::{self, window};
use crate::state::user_agent;

/// What the browser tells.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// "Chrome 156 on Linux".
    pub(crate) browser: String,
    /// Threads the processor runs at once; the browser may round it down.
    pub(crate) cores: Option<u32>,
    /// The browser rounds it, and reports nothing above a limit.
    pub(crate) memory_gigabytes: Option<f64>,
}

impl Device {
    /// Asks the browser.
    pub(crate) fn read() -> Self {
        let navigator: JsValue = window().navigator().into();
        let number = |name| js::get(&navigator, name).and_then(|value| value.as_f64());
        Device {
            browser: user_agent::name(&js::text(&navigator, "userAgent").unwrap_or_default()),
            cores: number("hardwareConcurrency").map(|cores| cores as u32),
            memory_gigabytes: number("deviceMemory"),
        }
    }
}
