//! What this device can compute on.

use protocol::{spec::Backend, tab::BackendFinding};
use wasm_bindgen::JsValue;

use crate::js;

const SOFTWARE: &str =
    "WebGPU is only simulated on the processor here, which is slower than using the processor itself";

/// Look for WebGPU and the CPU; the latter is always there.
///
/// cubecl panics on an adapter without `timestamp-query`, and a panic ends the worker: so such an adapter is
/// found unusable before anything is opened.
pub(crate) async fn find() -> Vec<BackendFinding> {
    let threads = js::get(&js::navigator(), "hardwareConcurrency").and_then(|n| n.as_f64()).unwrap_or(1.0);
    let cpu = BackendFinding {
        backend: Backend::Cpu,
        device: format!("processor with {threads} threads, of which the tab uses one"),
        unusable: None,
        software: false,
        largest_buffer: None,
    };
    vec![webgpu().await, cpu]
}

async fn webgpu() -> BackendFinding {
    let finding = |device: String, unusable: Option<&str>| BackendFinding {
        backend: Backend::WebGpu,
        device,
        unusable: unusable.map(Into::into),
        software: unusable == Some(SOFTWARE),
        largest_buffer: None,
    };
    let none = || "no graphics adapter".to_string();
    let Some(gpu) = js::get(&js::navigator(), "gpu") else {
        return finding(
            none(),
            Some("this browser offers no WebGPU here; it needs a recent browser and an https page"),
        );
    };
    let adapter = match js::call_async(&gpu, "requestAdapter", &JsValue::UNDEFINED).await {
        Ok(adapter) if adapter.is_object() => adapter,
        _ => return finding(none(), Some("the browser gives no WebGPU adapter on this device")),
    };
    let info = js::get(&adapter, "info");
    let about =
        |name| info.as_ref().and_then(|i| js::get(i, name)).and_then(|v| v.as_string()).unwrap_or_default();
    let name = [about("description"), format!("{} {}", about("vendor"), about("architecture"))]
        .into_iter()
        .map(|n| n.trim().to_string())
        .find(|n| !n.is_empty())
        .unwrap_or_else(|| "graphics adapter".into());
    let timestamps = js::get(&adapter, "features")
        .and_then(|features| js::call(&features, "has", &"timestamp-query".into()).ok())
        .is_some_and(|has| has.is_truthy());
    if !timestamps {
        return finding(
            name,
            Some("the graphics driver lacks timestamp-query, which the training program needs"),
        );
    }
    let fallback = |object: &JsValue| js::get(object, "isFallbackAdapter").is_some_and(|v| v.is_truthy());
    let software = info.as_ref().is_some_and(fallback) || fallback(&adapter);
    let limits = js::get(&adapter, "limits");
    let limit = |name| limits.as_ref().and_then(|l| js::get(l, name)).and_then(|v| v.as_f64());
    // A kernel sees a buffer through a binding, so the smaller of the two counts.
    let largest_buffer = ["maxBufferSize", "maxStorageBufferBindingSize"]
        .into_iter()
        .filter_map(limit)
        .map(|bytes| bytes as u64)
        .min();
    BackendFinding { largest_buffer, ..finding(name, software.then_some(SOFTWARE)) }
}
