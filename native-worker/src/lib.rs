//! A worker without a browser: the engine's session over tokio and tungstenite.
//!
//! Computing blocks the thread of the session; the socket and HTTP live on a runtime of their own, so
//! that frames flow and pings are answered meanwhile.

mod blobs;
mod clock;
mod link;
mod network;
mod report;

use std::sync::Arc;

use anyhow::{Context, bail};
use engine::session::{
    self, End, Leave,
    devices::{Candidate, Devices},
    host::Host,
};
use protocol::{
    VERSION,
    message::{DrainReason, Hello, Vitals, WorkerKind},
    spec::Backend,
};

pub use link::{Link, LinkError};

/// How to take part.
#[derive(Debug, Clone)]
pub struct Options {
    /// Link of the coordinator.
    pub url: String,
    /// None: the fastest.
    pub backend: Option<Backend>,
    pub name: String,
    /// Bytes that a stage may take; None: as much as it needs.
    pub memory_bytes: Option<u64>,
}

/// Take part in a run until it is over or Ctrl-C is pressed.
///
/// # Errors
/// When the link makes no sense, the coordinator turns this worker away, or the device cannot compute.
pub fn work(options: Options) -> anyhow::Result<()> {
    let link = Link::parse(&options.url)?;
    let io = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("the network could not be set up")?;
    let (ask_to_leave, leave) = Leave::new();
    io.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            let _ = ask_to_leave.send(());
        }
    });
    let handle = io.handle().clone();
    // Timers of the session, which runs on this thread, belong to that runtime too.
    let _timers = io.enter();
    let host = Host {
        network: network::Network::new(link.clone(), handle.clone()),
        clock: clock::Clock::new(),
        blobs: blobs::Blobs::new(Arc::new(link), handle),
        vitals: Box::new(vitals),
        tell: Box::new(report::report),
    };
    let hello = Hello {
        protocol: VERSION,
        build: env!("CARGO_PKG_VERSION").into(),
        kind: WorkerKind::Native,
        name: options.name.chars().take(protocol::limits::NAME).collect(),
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let memory = options.memory_bytes.unwrap_or(0);
    let devices = Devices::new(candidates(options.backend, threads), threads, memory);
    match futures::executor::block_on(session::run(&host, hello, devices, leave)) {
        End::Over(DrainReason::Finished | DrainReason::Stopped) | End::Left => Ok(()),
        End::Refused(words) => bail!("the coordinator turned this worker away: {words}"),
        End::Failed(words) => bail!("{words}"),
    }
}

/// This process's memory; operating systems do not tell pressure.
fn vitals() -> Vitals {
    Vitals { memory_bytes: memory_stats::memory_stats().map_or(0, |m| m.physical_mem as u64), pressure: None }
}

fn candidates(wanted: Option<Backend>, threads: u32) -> Vec<Candidate> {
    let candidate = |backend, description| Candidate { backend, description, largest_buffer: None };
    let cpu = candidate(Backend::Cpu, format!("CPU, {threads} threads"));
    let gpu = candidate(Backend::WebGpu, "GPU through wgpu".into());
    match wanted {
        Some(Backend::Cpu) => vec![cpu],
        Some(Backend::WebGpu) => vec![gpu],
        None if cfg!(feature = "gpu") => vec![gpu, cpu],
        None => vec![cpu],
    }
}
