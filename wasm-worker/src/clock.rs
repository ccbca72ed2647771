//! Time in a Web Worker, and the way to its event loop.

use js_sys::Promise;
use wasm_bindgen::{JsCast, JsValue, prelude::Closure};
use wasm_bindgen_futures::JsFuture;
use web_sys::{MessageChannel, Performance};
use worker::platform;

use crate::js;

/// Time since the worker began, and its event loop.
pub(crate) struct Clock {
    performance: Option<Performance>,
    /// A message to ourselves is the shortest way through the event loop: timers are held back by 4 ms.
    channel: Option<MessageChannel>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { performance: js::worker_scope().performance(), channel: MessageChannel::new().ok() }
    }
}

impl platform::Clock for Clock {
    fn now(&self) -> f64 {
        self.performance.as_ref().map_or(0.0, Performance::now) / 1e3
    }

    async fn sleep(&self, seconds: f64) {
        let milliseconds = (seconds.max(0.0) * 1e3).min(f64::from(i32::MAX)) as i32;
        let promise = Promise::new(&mut |resolve, _| {
            let scope = js::worker_scope();
            let _ = scope.set_timeout_with_callback_and_timeout_and_arguments_0(&resolve, milliseconds);
        });
        let _ = JsFuture::from(promise).await;
    }

    async fn yield_now(&self) {
        let Some(channel) = &self.channel else { return self.sleep(0.0).await };
        let promise = Promise::new(&mut |resolve, _| {
            let wake = Closure::once_into_js(move || {
                let _ = resolve.call0(&JsValue::UNDEFINED);
            });
            channel.port1().set_onmessage(Some(wake.unchecked_ref()));
        });
        let _ = channel.port2().post_message(&JsValue::NULL);
        let _ = JsFuture::from(promise).await;
    }
}
