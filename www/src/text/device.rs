//! This device in words: what it is, and whether it offers WebGPU and a screen lock.

use protocol::{message::Profile, tab::BackendFinding};

use super::{
    bounded, capital,
    numbers::{plural, seconds},
    sentence, worker,
};

/// What a first look at WebGPU found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WebGpu {
    /// The browser has not answered yet.
    Looking,
    /// The adapter's name; empty where the browser does not tell.
    Yes(String),
    No(NoWebGpu),
}

/// Why there is no WebGPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoWebGpu {
    NotOffered,
    /// The page came over plain http.
    Insecure,
    NoAdapter,
    /// The processor simulates a graphics chip.
    Software,
    NoTimestamps,
    NoAnswer,
}

impl NoWebGpu {
    fn words(self) -> &'static str {
        match self {
            NoWebGpu::NotOffered => "This browser does not offer WebGPU, so the processor does the work.",
            NoWebGpu::Insecure => {
                "This page came over plain http, where browsers switch WebGPU off. Open it by https to use the graphics \
                 chip. Until then the processor does the work."
            }
            NoWebGpu::NoAdapter => {
                "The browser has WebGPU but finds no graphics chip it can use, so the processor does the work."
            }
            NoWebGpu::Software => "WebGPU is only simulated here; the processor is faster and does the work.",
            NoWebGpu::NoTimestamps => {
                "This graphics driver lacks a feature that the training program needs (timestamp-query), so the \
                 processor does the work."
            }
            NoWebGpu::NoAnswer => {
                "The browser does not answer whether it has a graphics chip, so the processor does the work."
            }
        }
    }
}

/// Whether there is WebGPU, and a line about it. The training program looks more closely than the page can, so its
/// finding comes first.
pub(crate) fn webgpu(found: Option<BackendFinding>, first_look: WebGpu) -> (&'static str, String) {
    match (found, first_look) {
        (Some(BackendFinding { unusable: None, device, .. }), _) => ("Yes", bounded(&device)),
        (Some(BackendFinding { unusable: Some(why), .. }), _) => ("No", sentence(&why)),
        (None, WebGpu::Looking) => ("…", String::new()),
        (None, WebGpu::Yes(name)) if name.is_empty() => ("Yes", String::new()),
        (None, WebGpu::Yes(name)) => ("Yes", bounded(&name)),
        (None, WebGpu::No(why)) => ("No", why.words().to_owned()),
    }
}

/// Threads of the processor.
pub(crate) fn cores(cores: Option<u32>) -> String {
    cores.map_or(UNKNOWN.to_owned(), |n| plural(n.into(), "core", "cores"))
}

/// Memory as the browser tells it. Browsers stop counting at 8 GB, newer ones at 32.
pub(crate) fn memory(gigabytes: Option<f64>) -> String {
    gigabytes.map_or(UNKNOWN.to_owned(), |gigabytes| {
        format!("About {gigabytes} GB{}", if gigabytes == 8.0 || gigabytes >= 32.0 { " or more" } else { "" })
    })
}

/// What it trains on, once it has measured.
pub(crate) fn trains_on(profile: Option<&Profile>) -> String {
    match profile {
        Some(profile) => format!(
            "{}: {} a layer, forward and backward",
            capital(worker::backend(profile.backend)),
            seconds(profile.layer.total())
        ),
        None => "Measured when you join".to_owned(),
    }
}

/// Whether the screen is kept on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScreenLock {
    Off,
    On,
    Denied(NoScreenLock),
}

/// Why the screen is not kept on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoScreenLock {
    NotOffered,
    /// The browser's `NotAllowedError`.
    NotAllowed,
    Other,
}

/// What becomes of the screen while the device takes part.
pub(crate) fn screen(takes_part: bool, wanted: bool, lock: ScreenLock) -> String {
    match (takes_part, wanted, lock) {
        (_, true, ScreenLock::Denied(why)) => {
            let why = match why {
                NoScreenLock::NotOffered => "this browser does not offer it here",
                NoScreenLock::NotAllowed => "the browser does not allow it now, for example to save power",
                NoScreenLock::Other => "the browser refused",
            };
            format!("The screen cannot be kept on: {why}. A device that falls asleep leaves the run.")
        }
        (true, true, ScreenLock::On) => "The screen stays on while this device takes part.".to_owned(),
        (true, false, _) => "The screen may turn off. A phone then stops training within seconds.".to_owned(),
        _ => "While this device takes part, the screen stays on.".to_owned(),
    }
}

pub(crate) const TITLE: &str = "This device";
pub(crate) const BROWSER: &str = "Browser";
pub(crate) const PROCESSOR: &str = "Processor";
pub(crate) const MEMORY: &str = "Memory";
pub(crate) const WEBGPU: &str = "WebGPU";
pub(crate) const TRAINS_ON: &str = "Trains on";
const UNKNOWN: &str = "The browser does not tell";

#[cfg(test)]
mod tests {
    use protocol::spec::Backend;

    use super::*;

    #[test]
    fn the_training_programs_finding_comes_first() {
        let found = BackendFinding {
            backend: Backend::WebGpu,
            device: "adapter".into(),
            unusable: Some("no adapter".into()),
            software: false,
            largest_buffer: None,
        };
        assert_eq!(webgpu(Some(found), WebGpu::Yes("chip".into())), ("No", "No adapter.".into()));
        assert_eq!(webgpu(None, WebGpu::Yes("chip".into())), ("Yes", "chip".into()));
        assert!(webgpu(None, WebGpu::No(NoWebGpu::Insecure)).1.contains("https"));
    }

    #[test]
    fn a_denied_screen_lock_has_words_and_no_exception() {
        let said = screen(true, true, ScreenLock::Denied(NoScreenLock::NotAllowed));
        assert!(said.starts_with("The screen cannot be kept on: the browser does not allow it"), "{said}");
        let off = screen(true, false, ScreenLock::Denied(NoScreenLock::Other));
        assert!(off.starts_with("The screen may turn off"), "{off}");
    }
}
