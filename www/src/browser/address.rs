//! What the address bar says: the route, the wishes in the query, where the coordinator is.

use protocol::spec::Backend;
use web_sys::UrlSearchParams;

use super::js::window;

/// The path's last part, which names the page: "" or "index.html", "organizer", "watch", "playground". What is before it is a proxy's.
pub(crate) fn page() -> String {
    let path = window().location().pathname().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// `https://host:port/` of the coordinator, which served this page, with the path that a proxy puts before it.
pub(crate) fn coordinator() -> String {
    let location = window().location();
    let (origin, path) = (location.origin().unwrap_or_default(), location.pathname().unwrap_or_default());
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{origin}{folder}/")
}

/// `wss://host:port/v1/session`.
pub(crate) fn session_url() -> String {
    let coordinator = coordinator();
    match coordinator.strip_prefix("https://") {
        Some(place) => format!("wss://{place}v1/session"),
        None => format!("ws://{}v1/session", coordinator.trim_start_matches("http://")),
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
