//! A worker without a browser: the session of the crate `worker` over tokio and tungstenite.
//!
//! | module | is |
//! |---|---|
//! | `network`, `queue` | the WebSocket |
//! | `blobs` | requests to the coordinator's store |
//! | `clock` | time |
//! | `report` | what happens, as log lines |
//! | `io` | work on the IO runtime |
//! | `link` | the link that a coordinator prints |
//! | `trust` | which certificates of coordinators are trusted |
//!
//! The session computes on a thread of its own, which it blocks meanwhile; the socket, HTTP and the wait for Ctrl-C live
//! on a runtime beside it, so that frames flow and pings are answered, and so that the program ends in time even in the
//! middle of a long computation.
#![deny(missing_docs, unreachable_pub)]

mod blobs;
mod clock;
mod io;
mod link;
mod network;
mod queue;
mod report;
mod trust;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, anyhow, bail};
use protocol::{
    VERSION,
    limits::{NAME, shorten},
    message::{Hello, WorkerKind},
    spec::Backend,
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    select,
    sync::oneshot,
    time::timeout,
};
use worker::{
    End, Leave,
    devices::{Candidate, Devices},
    platform::Platform,
};

pub use link::{Link, LinkError};
pub use trust::TrustError;

/// Time for the session to say goodbye after Ctrl-C. It takes longer only in the middle of a computation, and is then
/// not waited for.
const GRACE: Duration = Duration::from_millis(1500);

/// How to take part.
#[derive(Debug, Clone)]
pub struct Options {
    /// Link of the coordinator.
    pub url: String,
    /// A PEM file with an authority to trust beside those that this computer trusts: the run's own.
    pub authority: Option<PathBuf>,
    /// None: the fastest.
    pub backend: Option<Backend>,
    /// Name shown to the organizer.
    pub name: String,
    /// Bytes that a stage may take; None: as much as it needs.
    pub memory_bytes: Option<u64>,
}

/// Takes part in a run until it is over, or Ctrl-C or SIGTERM asks this process to end: within two seconds of that.
///
/// # Errors
/// When the link makes no sense, the coordinator turns this worker away, or the device cannot compute.
pub fn work(options: Options) -> anyhow::Result<()> {
    work_until(options, asked_to_end())
}

/// Takes part in a run until it is over, or `asked` is done.
///
/// # Errors
/// As for [`work`].
pub fn work_until(options: Options, asked: impl Future<Output = ()>) -> anyhow::Result<()> {
    let link = Link::parse(&options.url)?;
    let settings = trust::settings(options.authority.as_deref())?;
    let store = blobs::client(&settings)?;
    let io = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("the network could not be set up")?;
    let end = io.block_on(take_part(Ways { io: io.handle().clone(), link, settings, store }, options, asked));
    // Whatever still runs there, such as a name lookup, is not waited for.
    Runtime::shutdown_background(io);
    match end? {
        End::Over(_) | End::Left => Ok(()),
        End::Refused(words) => bail!("the coordinator turned this worker away: {words}"),
        End::Failed(words) => bail!("{words}"),
    }
}

/// How the session reaches the coordinator.
struct Ways {
    io: Handle,
    link: Link,
    settings: Arc<rustls::ClientConfig>,
    store: reqwest::Client,
}

async fn take_part(ways: Ways, options: Options, asked: impl Future<Output = ()>) -> anyhow::Result<End> {
    let (ask_to_leave, leave) = Leave::new();
    let (ended, mut end) = oneshot::channel();
    std::thread::Builder::new()
        .name("session".into())
        .spawn(move || {
            // Nobody listens any more when the program ends before the session.
            let _ = ended.send(session(ways, options, leave));
        })
        .context("the session's thread could not be started")?;
    let failed = || anyhow!("the session failed; its error stands above");
    select! {
        end = &mut end => return end.map_err(|_| failed()),
        () = asked => {}
    }
    let _ = ask_to_leave.send(());
    match timeout(GRACE, end).await {
        Ok(end) => end.map_err(|_| failed()),
        Err(_) => {
            tracing::info!("left in the middle of a computation");
            Ok(End::Left)
        }
    }
}

/// The session, on this thread.
fn session(ways: Ways, options: Options, leave: Leave) -> End {
    let Ways { io, link, settings, store } = ways;
    // Timers of the session belong to the IO runtime.
    let _timers = io.enter();
    let platform = Platform {
        network: network::Network::new(link.clone(), settings, io.clone()),
        clock: clock::Clock::new(),
        blobs: blobs::Blobs::new(Arc::new(link), store, io.clone()),
        reporter: report::Reporter,
    };
    let hello = Hello {
        protocol: VERSION,
        build: env!("CARGO_PKG_VERSION").into(),
        kind: WorkerKind::Native,
        name: shorten(&options.name, NAME),
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u32);
    let memory = options.memory_bytes.unwrap_or(0);
    let devices = Devices::new(candidates(options.backend, threads), threads, memory);
    futures::executor::block_on(worker::run(&platform, hello, devices, leave))
}

/// Waits for Ctrl-C or SIGTERM. Where they cannot be heard, they end the process by themselves.
async fn asked_to_end() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    select! {
        () = interrupted => {}
        () = terminated => {}
    }
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
