//! `cohort serve`: from a run.toml to a coordinator that answers.

mod links;
pub mod settings;
mod start;

use std::{
    io::IsTerminal,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use protocol::view::Phase;

use crate::{config::RunConfig, tls::CertificateSource};
pub use start::{RunningCoordinator, start};

/// Time for the last workers to hear that the run is over.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run; without one, a small default run on the built-in dictionary.
    run: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Name by which this coordinator is reached, beside its addresses and localhost; may be given several times.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Certificate for https, as PEM, with those that lead to its authority; read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Speak https with a certificate of the run's own, for phones in a network without public names: their browsers warn
    /// once.
    #[arg(long, conflicts_with = "tls_cert")]
    tls_self_signed: bool,
    /// Folder for everything the run keeps [default: cohort-data/<name of the run>, for the default run numbered].
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Go on with the run in the data directory from its last snapshot.
    #[arg(long)]
    resume: bool,
    /// Workers to wait for before the first step, in place of pipeline.start_with.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    start_with: Option<u32>,
    /// End the program when the run is over.
    #[arg(long)]
    exit_when_over: bool,
    /// Write the log as JSON lines.
    #[arg(long)]
    log_json: bool,
}

/// Some large frames in each arena; what a burst of downloads took is given back.
const KEPT: u32 = 64 << 20;

pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { run, listen, host, data_dir, resume, start_with, exit_when_over, log_json, .. } =
        arguments;
    super::log(*log_json);
    engine::heap::keep_freed(KEPT);
    let config = load(run.as_deref())?;
    let options = Options {
        listen: *listen,
        data_dir: data_dir.clone(),
        numbered: run.is_none(),
        resume: *resume,
        start_with: *start_with,
        hosts: host.clone(),
        certificate: arguments.certificate(),
    };
    let exit_when_over = *exit_when_over;
    tokio::runtime::Runtime::new()?.block_on(serve(config, options, exit_when_over))
}

impl Arguments {
    fn certificate(&self) -> Option<CertificateSource> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(CertificateSource::Files { certificate: certificate.clone(), key: key.clone() })
            }
            _ => self.tls_self_signed.then_some(CertificateSource::SelfSigned),
        }
    }
}

/// What the command line says beside the run.toml.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// None: `cohort-data/<name of the run>`.
    pub data_dir: Option<PathBuf>,
    /// The run without a file, of which there may be several: without a folder of its own each gets a number.
    pub numbered: bool,
    /// Go on with the run in the folder.
    pub resume: bool,
    /// In place of `start_with` of the file.
    pub start_with: Option<u32>,
    /// Names by which requests may reach this coordinator, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Speak https with this certificate; None: http.
    pub certificate: Option<CertificateSource>,
}

/// The run of a file, or the default run.
///
/// # Errors
/// All faults of the file, one a line.
pub fn load(path: Option<&Path>) -> anyhow::Result<RunConfig> {
    let Some(path) = path else { return Ok(RunConfig::default()) };
    RunConfig::load(path).map_err(|faults| {
        anyhow::anyhow!(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    })
}

/// Serves a run until it is over and nobody wants to see the pages any more, or until Ctrl-C.
///
/// # Errors
/// What keeps the coordinator from starting or going on; with `exit_when_over`, a run that did not finish.
pub async fn serve(config: RunConfig, options: Options, exit_when_over: bool) -> anyhow::Result<()> {
    let mut serving = start(config, options).await?;
    links::print(&serving, &mut std::io::stdout().lock(), std::io::stdout().is_terminal())?;
    tracing::info!("the run is kept in {}", serving.data_dir.display());
    let ending = tokio::select! {
        ending = &mut serving.over => ending.context("the run ended without saying how")?,
        result = &mut serving.failed => return result?,
        signal = stop_signal() => return signal,
    };
    match (ending.phase, &ending.checkpoint) {
        (Phase::Finished, Some(checkpoint)) => println!("finished: {}", checkpoint.display()),
        (_, Some(checkpoint)) => println!("stopped; the last checkpoint is {}", checkpoint.display()),
        (_, None) => println!("stopped before the first checkpoint"),
    }
    if exit_when_over {
        // The workers have been told; those that do not hear it must not keep the program.
        let _ = tokio::time::timeout(LAST_WORDS, serving.deserted()).await;
        if ending.phase != Phase::Finished {
            bail!("the run was stopped before its last step");
        }
        return Ok(());
    }
    // The pages stay up: people want to see how it went.
    tokio::select! {
        result = &mut serving.failed => result?,
        signal = stop_signal() => signal,
    }
}

/// Ends with Ctrl-C, or with the signal by which a service is stopped.
async fn stop_signal() -> anyhow::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            signal = tokio::signal::ctrl_c() => Ok(signal?),
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    Ok(tokio::signal::ctrl_c().await?)
}
