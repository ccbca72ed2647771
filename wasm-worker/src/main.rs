//! The session of the crate `worker` in a dedicated Web Worker.
//!
//! The page and this worker talk in JSON ([`protocol::tab`]). The worker speaks first, with the backends it
//! found: that is the sign that it listens. A panic ends the instance; the page sees the error and starts
//! another worker.
#![cfg(web)]
#![deny(missing_docs, unreachable_pub)]

mod backends;
mod blobs;
mod clock;
mod js;
mod network;
mod page;
mod status;

use std::cell::RefCell;

use futures::channel::oneshot;
use protocol::{
    VERSION,
    message::{Hello, WorkerKind},
    spec::{Backend, RunSpec},
    tab::{BackendFinding, Command, SessionEvent},
};
use wasm_bindgen::{JsCast, prelude::Closure};
use wasm_bindgen_futures::spawn_local;
use web_sys::MessageEvent;
use worker::{
    Leave,
    devices::{Candidate, Devices},
    platform::{Clock as _, Platform},
};

/// What a stage may take of a device whose memory is not known, in bytes. A tab on iOS dies near 1.5 GB.
const CAUTIOUS_MEMORY: u64 = 500 << 20;

thread_local! {
    /// Fires when the page asks to leave.
    static LEAVE: RefCell<Option<oneshot::Sender<()>>> = const { RefCell::new(None) };
}

fn main() {
    console_error_panic_hook::set_once();
    let listen = Closure::<dyn FnMut(MessageEvent)>::new(|event: MessageEvent| {
        let text = event.data().as_string().unwrap_or_default();
        match serde_json::from_str::<Command>(&text) {
            Ok(command) => obey(command),
            Err(e) => {
                page::tell(SessionEvent::Failed { words: format!("the page's order is not understood: {e}") })
            }
        }
    });
    js::worker_scope().set_onmessage(Some(listen.as_ref().unchecked_ref()));
    status::observe_pressure();
    // It listens for as long as the worker lives.
    listen.forget();
    spawn_local(async {
        let found = backends::find().await;
        page::tell(SessionEvent::Backends { found });
    });
}

fn obey(command: Command) {
    match command {
        Command::Join { session_url, coordinator, name, backend, allow_software_gpu, memory_bytes } => {
            let (sender, leave) = Leave::new();
            LEAVE.with_borrow_mut(|slot| *slot = Some(sender));
            spawn_local(async move {
                let found = backends::find().await;
                let candidates = match candidates(found, backend, allow_software_gpu) {
                    Ok(candidates) => candidates,
                    Err(words) => return page::tell(SessionEvent::Failed { words }),
                };
                let platform = Platform {
                    network: network::Network::new(session_url),
                    clock: clock::Clock::new(),
                    blobs: blobs::Blobs::new(coordinator),
                    reporter: page::Reporter,
                };
                let hello = Hello {
                    protocol: VERSION,
                    build: env!("CARGO_PKG_VERSION").into(),
                    kind: WorkerKind::Browser,
                    name: protocol::limits::shorten(&name, protocol::limits::NAME),
                };
                let devices = Devices::new(candidates, 1, memory_bytes.unwrap_or_else(memory));
                worker::run(&platform, hello, devices, leave).await;
            });
        }
        Command::Leave => LEAVE.with_borrow_mut(|slot| {
            if let Some(sender) = slot.take() {
                let _ = sender.send(());
            }
        }),
        Command::Bench { run, backend, repeats } => spawn_local(async move {
            page::tell(match bench(&run, backend, repeats).await {
                Ok(seconds) => SessionEvent::Benched { seconds },
                Err(words) => SessionEvent::Failed { words },
            });
        }),
    }
}

/// The backends to try: the forced one, or all that can be used.
///
/// # Errors
/// Why the forced one cannot be used, and what to do instead.
fn candidates(
    found: Vec<BackendFinding>,
    forced: Option<Backend>,
    allow_software_gpu: bool,
) -> Result<Vec<Candidate>, String> {
    let mut candidates = Vec::new();
    for finding in found.into_iter().filter(|f| forced.is_none_or(|wanted| f.backend == wanted)) {
        match finding.unusable {
            Some(why) if !(finding.software && allow_software_gpu) => {
                if forced.is_some() {
                    return Err(format!("{why}. Open the link without `backend=` to train on the processor"));
                }
            }
            _ => candidates.push(Candidate {
                backend: finding.backend,
                description: finding.device,
                largest_buffer: finding.largest_buffer,
            }),
        }
    }
    Ok(candidates)
}

/// A fourth of the device's memory, as far as the browser tells it; never more than 2 GB, the browser's word
/// for "8 GB or more" is not to be stretched.
fn memory() -> u64 {
    match js::device_memory_gib() {
        Some(gib) => ((gib * 0.25 * f64::from(1 << 30)) as u64).clamp(256 << 20, 2 << 30),
        None => CAUTIOUS_MEMORY,
    }
}

async fn bench(run: &RunSpec, backend: Backend, repeats: u32) -> Result<Vec<f64>, String> {
    let clock = clock::Clock::new();
    let device = engine::device::open(backend).await.map_err(|e| e.to_string())?;
    engine::profile::bench_step(run, &device, repeats, || clock.now()).await.map_err(|e| e.to_string())
}
