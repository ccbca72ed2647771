//! A first look at WebGPU, before the training program is loaded. That program looks again and decides.

use super::js::{self, window};
use crate::text::device::{NoWebGpu, WebGpu};

/// What the browser offers.
pub(crate) async fn look() -> WebGpu {
    let Some(gpu) = js::get(&window().navigator(), "gpu") else {
        let secure = window().is_secure_context();
        return WebGpu::No(if secure { NoWebGpu::NotOffered } else { NoWebGpu::Insecure });
    };
    let adapter = match js::try_call_async(&gpu, "requestAdapter", None).await {
        Ok(adapter) if adapter.is_object() => adapter,
        _ => return WebGpu::No(NoWebGpu::NoAdapter),
    };
    let info = js::get(&adapter, "info");
    let about = |name| info.as_ref().and_then(|info| js::text(info, name));
    let is_fallback = |object| js::get(object, "isFallbackAdapter").is_some_and(|value| value.is_truthy());
    if info.as_ref().is_some_and(is_fallback) || is_fallback(&adapter) {
        return WebGpu::No(NoWebGpu::Software);
    }
    let has_timestamps = js::get(&adapter, "features")
        .and_then(|features| js::call(&features, "has", Some(&"timestamp-query".into())))
        .is_some_and(|has| has.is_truthy());
    if !has_timestamps {
        return WebGpu::No(NoWebGpu::NoTimestamps);
    }
    let joined =
        || [about("vendor"), about("architecture")].into_iter().flatten().collect::<Vec<_>>().join(" ");
    WebGpu::Yes(about("description").unwrap_or_else(joined))
}
