//! `cohort work` ends well when it is asked to, whatever it is busy with.

use std::time::Duration;

use anyhow::{Result, ensure};
use protocol::view::RunView;
use tests::{Coordinator, NativeWorker, alone, runs::TinyRun};
use tokio::net::TcpListener;

/// Two seconds are promised; a busy computer may take longer to look.
const LIMIT: Duration = Duration::from_secs(10);

async fn ends_well(mut worker: NativeWorker) -> Result<()> {
    let status = worker.process.wait_for_end(LIMIT).await?;
    ensure!(status.success(), "`cohort work` ended with {status}");
    Ok(())
}

#[tokio::test]
async fn towards_a_port_that_never_answers() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    for ask in [tests::process::Process::interrupt, tests::process::Process::terminate] {
        let worker = NativeWorker::start(&url, "unanswered", &[])?;
        let _held = listener.accept().await?;
        ask(&worker.process);
        ends_well(worker).await?;
    }
    Ok(())
}

#[tokio::test]
async fn in_training_and_while_waiting_to_connect_again() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 1_000_000, lease_seconds: 60.0, ..TinyRun::default() };
    let mut coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let connected = |run: &RunView, name: &str| run.workers.iter().any(|worker| worker.name == name);
    for ask in [tests::process::Process::interrupt, tests::process::Process::terminate] {
        let worker = NativeWorker::start(&coordinator.url, "training", &[])?;
        let before = coordinator.api.run().await?.step;
        coordinator.wait_for_run("further steps", |run| run.step > before + 2).await?;
        ask(&worker.process);
        ends_well(worker).await?;
        // Long before its lease ends: it has said goodbye, or its connection has closed.
        coordinator.wait_for_run("the worker to be gone", |run| !connected(run, "training")).await?;
    }

    let mut worker = NativeWorker::start(&coordinator.url, "left-alone", &[])?;
    coordinator.wait_for_run("the worker", |run| connected(run, "left-alone")).await?;
    coordinator.process.kill().await?;
    let again = |line: &str| line.contains("trying again").then_some(());
    worker.process.wait_for_line("that it tries again", tests::LIMIT, again).await?;
    worker.process.interrupt();
    ends_well(worker).await
}
