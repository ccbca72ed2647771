//! A first look at WebGPU, before the training program is loaded. That program looks again and decides.

use super::js::{self, window};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebGpu {
    Looking,
    /// The adapter's name.
    Yes(String),
    /// Why not, one sentence.
    No(String),
}

pub async fn look() -> WebGpu {
    let Some(gpu) = js::get(&window().navigator(), "gpu") else {
        return WebGpu::No(if window().is_secure_context() {
            "This browser does not offer WebGPU, so the processor does the work.".to_owned()
        } else {
            "This page came over plain http, where browsers keep WebGPU off. Open it by https to use the graphics \
             chip. Until then the processor does the work."
                .to_owned()
        });
    };
    let adapter = match js::call_async(&gpu, "requestAdapter", None).await {
        Ok(adapter) if adapter.is_object() => adapter,
        _ => {
            return WebGpu::No(
                "The browser has WebGPU but finds no graphics chip it can use, so the processor does the work.".to_owned(),
            );
        }
    };
    let info = js::get(&adapter, "info");
    let about = |name| info.as_ref().and_then(|info| js::text(info, name));
    let is_fallback = |object| js::get(object, "isFallbackAdapter").is_some_and(|value| value.is_truthy());
    if info.as_ref().is_some_and(is_fallback) || is_fallback(&adapter) {
        return WebGpu::No(
            "WebGPU is only simulated here; the processor is faster and does the work.".to_owned(),
        );
    }
    let timing = js::get(&adapter, "features")
        .and_then(|features| js::call(&features, "has", Some(&"timestamp-query".into())))
        .is_some_and(|has| has.is_truthy());
    if !timing {
        return WebGpu::No(
            "This graphics driver lacks a feature the training program needs (timestamp-query), so the processor \
             does the work."
                .to_owned(),
        );
    }
    let names = [about("description"), about("vendor"), about("architecture")];
    let name = names[0]
        .clone()
        .unwrap_or_else(|| names[1..].iter().flatten().cloned().collect::<Vec<_>>().join(" "));
    WebGpu::Yes(if name.is_empty() { "available".to_owned() } else { name })
}
