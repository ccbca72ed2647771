//! `cohort serve` on a free port with a folder of its own.

use std::{
    ffi::OsStr,
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use protocol::view::{CurvePoint, Phase, RunView};
use tempfile::TempDir;

use crate::{
    api::{Api, client_trusting, finished},
    cohort,
    process::Process,
    wait::{LIMIT, wait_until},
    worker::NativeWorker,
};

/// Where a coordinator that speaks https by itself keeps the certificate of its authority.
pub const OWN_AUTHORITY: &str = "tls/authority.pem";
const START: Duration = Duration::from_mins(2);

pub struct Coordinator {
    pub process: Process,
    /// `http://127.0.0.1:PORT`
    pub url: String,
    /// The link with the organizer's token.
    pub organizer: String,
    pub api: Api,
    workers: Mutex<Vec<NativeWorker>>,
    folder: TempDir,
}

impl Coordinator {
    /// Serves this `run.toml`; returns once it listens.
    pub async fn start(run_toml: &str, arguments: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("cohort-test-").tempdir()?;
        fs::write(folder.path().join("run.toml"), run_toml)?;
        Self::start_in(folder, arguments).await
    }

    /// Serves the `run.toml` in `folder`, with data in `folder`/data.
    pub async fn start_in(folder: TempDir, arguments: &[&str]) -> Result<Self> {
        Self::start_at("127.0.0.1:0", folder, arguments).await
    }

    async fn start_at(listen: &str, folder: TempDir, arguments: &[&str]) -> Result<Self> {
        let mut process = Process::start("cohort serve", &cohort::binary()?, |command| {
            command
                .args([OsStr::new("serve"), folder.path().join("run.toml").as_os_str()])
                .args(["--listen", listen, "--data-dir"])
                .arg(folder.path().join("data"))
                .args(arguments)
                .current_dir(folder.path());
        })?;
        let after =
            |start: &'static str| move |line: &str| line.strip_prefix(start).map(|s| s.trim().to_owned());
        let url = process.wait_for_line("where it listens", START, after("listening on ")).await?;
        let organizer = process.wait_for_line("the organizer's link", START, after("organizer: ")).await?;
        let token = organizer.split_once("#token=").context("the organizer's link has no token")?.1;
        let url = url.trim_end_matches('/').to_owned();
        let authority = folder.path().join("data").join(OWN_AUTHORITY);
        let api = match authority.exists() {
            true => Api::with_client(client_trusting(&authority)?, &url, token),
            false => Api::new(&url, token),
        };
        Ok(Self { api, process, url, organizer, workers: Mutex::default(), folder })
    }

    /// A native worker on the CPU. Waiting for the run fails when it ends otherwise than well.
    pub fn start_worker(&self, name: &str) -> Result<()> {
        self.start_worker_with(name, &[])
    }

    /// The same with further arguments for `cohort work`.
    pub fn start_worker_with(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let worker = NativeWorker::start(&self.url, name, arguments)?;
        self.workers().push(worker);
        Ok(())
    }

    /// The same through another address, such as a proxy's.
    pub fn start_worker_at(&self, url: &str, name: &str) -> Result<()> {
        let worker = NativeWorker::start(url, name, &[])?;
        self.workers().push(worker);
        Ok(())
    }

    /// Names and process numbers of the native workers.
    pub fn worker_processes(&self) -> Vec<(String, u32)> {
        self.workers().iter().map(|worker| (worker.name.clone(), worker.process.id())).collect()
    }

    /// As many as asked, named `native-1` and so on.
    pub fn start_workers(&self, count: usize) -> Result<()> {
        (1..=count).try_for_each(|number| self.start_worker(&format!("native-{number}")))
    }

    fn workers(&self) -> MutexGuard<'_, Vec<NativeWorker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ensure_workers_well(&self) -> Result<()> {
        self.workers().iter_mut().try_for_each(|worker| worker.process.ensure_well())
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The weights after this many steps.
    pub fn checkpoint(&self, steps: u64) -> PathBuf {
        self.data().join("checkpoints").join(format!("step-{steps:06}")).join("model.safetensors")
    }

    /// Waits until the run is as asked.
    ///
    /// # Errors
    /// After [`LIMIT`], or when the run ends before.
    pub async fn wait_for_run(&self, what: &str, asked: impl Fn(&RunView) -> bool) -> Result<RunView> {
        wait_until(what, LIMIT, async || {
            self.ensure_workers_well()?;
            let run = self.api.run().await?;
            let over = finished(&run)?;
            let run = asked(&run).then_some(run);
            ensure!(run.is_some() || !over, "the run has finished without {what}");
            Ok(run)
        })
        .await
    }

    /// Waits for the last step, and gives the whole learning curve.
    pub async fn wait_for_finish(&self) -> Result<Vec<CurvePoint>> {
        self.wait_for_run("the end", |run| run.phase == Phase::Finished).await?;
        self.api.curve().await
    }

    /// Ends the process on the spot, as `kill -9` does, and starts another at the same address that goes on with
    /// the run. The workers know nothing of it.
    pub async fn kill_and_resume(mut self) -> Result<Self> {
        self.process.kill().await?;
        let listen = self.url.trim_start_matches("http://").to_owned();
        let resumed = Self::start_at(&listen, self.folder, &["--resume"]).await?;
        *resumed.workers() =
            std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(resumed)
    }

    /// Ends a native worker on the spot. Its name is as in [`Coordinator::start_worker`].
    pub async fn kill_worker(&self, name: &str) -> Result<()> {
        let at = self.workers().iter().position(|worker| worker.name == name);
        let mut worker = self.workers().remove(at.with_context(|| format!("no worker is called {name}"))?);
        worker.process.kill().await
    }
}
