//! What the address bar says: the route, the wishes in the query, where the coordinator is.

use protocol::spec::Backend;
use web_sys::UrlSearchParams;

use super::js::window;

/// The path, "/" if the browser keeps it to itself.
pub(crate) fn path() -> String {
    window().location().pathname().unwrap_or_else(|_| "/".to_owned())
}

/// `https://host:port` of the coordinator, which served this page.
pub(crate) fn origin() -> String {
    window().location().origin().unwrap_or_default()
}

/// `wss://host:port/v1/session`.
pub(crate) fn session_url() -> String {
    let origin = origin();
    match origin.strip_prefix("https://") {
        Some(host) => format!("wss://{host}/v1/session"),
        None => format!("ws://{}/v1/session", origin.trim_start_matches("http://")),
    }
}

/// Whether only this machine can open the address.
pub(crate) fn is_loopback() -> bool {
    let host = window().location().hostname().unwrap_or_default();
    host == "localhost" || host.ends_with(".localhost") || host.starts_with("127.") || host == "[::1]"
}

/// The port in the address; empty for the usual one.
pub(crate) fn port() -> String {
    window().location().port().unwrap_or_default()
}

/// What a link may ask for: `?join=1&backend=cpu&name=Ada&memory=500&software-gpu=1`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    /// Join without waiting for the button.
    pub(crate) join: bool,
    /// Compute there.
    pub(crate) backend: Option<Backend>,
    /// Go by this name.
    pub(crate) name: Option<String>,
    /// Use WebGPU even where it is only software; for tests.
    pub(crate) software_gpu: bool,
    /// Bytes that this device's part may take; written in megabytes.
    pub(crate) memory_bytes: Option<u64>,
}

impl Wishes {
    /// Reads the address.
    pub(crate) fn read() -> Self {
        let query = window().location().search().unwrap_or_default();
        let Ok(query) = UrlSearchParams::new_with_str(&query) else { return Self::default() };
        let on = |name| query.get(name).is_some_and(|value| !matches!(value.as_str(), "0" | "false" | "no"));
        Wishes {
            join: on("join"),
            backend: match query.get("backend").as_deref() {
                Some("cpu") => Some(Backend::Cpu),
                Some("webgpu" | "gpu") => Some(Backend::WebGpu),
                _ => None,
            },
            name: query.get("name").filter(|name| !name.trim().is_empty()),
            software_gpu: on("software-gpu"),
            memory_bytes: query
                .get("memory")
                .and_then(|megabytes| megabytes.parse::<u64>().ok())
                .filter(|megabytes| *megabytes > 0)
                .map(|megabytes| megabytes.saturating_mul(1_000_000)),
        }
    }
}
