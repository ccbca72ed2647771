//! `cohort work`: take part in a run as a native worker.

use clap::ValueEnum;
use protocol::spec::Backend;

/// More than the buffers of a training step: the process does nothing else.
const KEPT: u32 = 1 << 30;

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Link that the coordinator printed, such as http://127.0.0.1:8080.
    url: String,
    /// Trust the certificates that this authority signs too: a PEM file, such as tls/authority.pem in the coordinator's
    /// data folder.
    #[arg(long, value_name = "FILE")]
    authority: Option<std::path::PathBuf>,
    /// Compute on this backend [default: the fastest].
    #[arg(long)]
    backend: Option<BackendChoice>,
    /// Name shown to the organizer.
    #[arg(long, default_value = "native worker")]
    name: String,
    /// Megabytes that its part of the model may take [default: what it needs].
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..))]
    memory: Option<u64>,
    /// Write the log as JSON lines.
    #[arg(long)]
    log_json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BackendChoice {
    Cpu,
    Webgpu,
}

impl From<BackendChoice> for Backend {
    fn from(choice: BackendChoice) -> Self {
        match choice {
            BackendChoice::Cpu => Backend::Cpu,
            BackendChoice::Webgpu => Backend::WebGpu,
        }
    }
}

pub(super) fn command(arguments: Arguments) -> anyhow::Result<()> {
    super::log(arguments.log_json);
    engine::heap::keep_freed(KEPT);
    native_worker::work(native_worker::Options {
        url: arguments.url,
        authority: arguments.authority,
        backend: arguments.backend.map(Into::into),
        name: arguments.name,
        memory_bytes: arguments.memory.map(|mb| mb.saturating_mul(1_000_000)),
    })
}
