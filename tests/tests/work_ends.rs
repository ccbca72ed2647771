//! `cohort work` ends well when it is asked to, whatever it is doing.
//!
//! The deadlines are generous: they tell a program that ends from one that does not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use protocol::view::{RunView, WorkerState};
use tests::{
    Coordinator, NativeWorker, alone,
    process::Process,
    runs::{TinyBlocks, TinyRun},
};
use tokio::net::{TcpListener, TcpStream};

/// For what must be over within two seconds on a computer that has time.
const SOON: Duration = Duration::from_secs(30);
/// For a program to start and do something.
const START: Duration = Duration::from_mins(2);

/// A way to ask a program to end.
type Ask = fn(&Process);

/// Ctrl-C, and what the system says when it shuts down.
const ASKED: [(&str, Ask); 2] = [("SIGINT", Process::interrupt), ("SIGTERM", Process::terminate)];

/// Asks it to end; it does, and says that all is well.
async fn ends(mut worker: NativeWorker, ask: Ask) -> Result<()> {
    ask(&worker.process);
    let status = worker.process.wait_for_end(SOON).await?;
    ensure!(status.success(), "{} ended with {status}", worker.name);
    Ok(())
}

/// Starts a worker at each way to end it, waits until the run is as asked, and has the worker end. The run has a place
/// for it again afterwards.
async fn ends_in(coordinator: &Coordinator, what: &str, asked: impl Fn(&RunView) -> bool) -> Result<()> {
    for (name, ask) in ASKED {
        let worker = NativeWorker::start(&coordinator.url, name, &[])?;
        let there = |run: &RunView| run.workers.iter().any(|worker| worker.name == name) && asked(run);
        coordinator.wait_for_run(&format!("{what} until {name}"), there).await?;
        ends(worker, ask).await.with_context(|| format!("{what}, {name}"))?;
        let gone = |run: &RunView| run.workers.iter().all(|worker| worker.name != name);
        coordinator.wait_for_run("it to be gone", gone).await?;
    }
    Ok(())
}

#[tokio::test]
async fn while_it_trains_a_stage() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 1_000_000, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let training = |run: &RunView| run.step > 2 && run.workers[0].state == WorkerState::Training;
    ends_in(&coordinator, "training a stage", training).await
}

#[tokio::test]
async fn while_it_trains_a_block() -> Result<()> {
    let _alone = alone().await;
    let run = TinyBlocks { blocks: 1, steps: 1_000_000, ..TinyBlocks::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let training =
        |run: &RunView| run.workers[0].replica.is_some_and(|r| r.accepted > 0 && r.block.is_some());
    ends_in(&coordinator, "training a block", training).await
}

#[tokio::test]
async fn while_it_waits_for_others() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { workers: 2, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let waiting = |run: &RunView| run.workers[0].state == WorkerState::Spare;
    ends_in(&coordinator, "waiting for others", waiting).await
}

#[tokio::test]
async fn while_its_coordinator_is_gone() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 1_000_000, ..TinyRun::default() };
    for (name, ask) in ASKED {
        let mut coordinator = Coordinator::start(&run.toml(), &[]).await?;
        let mut worker = NativeWorker::start(&coordinator.url, name, &[])?;
        coordinator.wait_for_run("steps", |run| run.step > 2).await?;
        coordinator.process.kill().await?;
        tries_again(&mut worker).await?;
        ends(worker, ask).await.with_context(|| format!("left alone, {name}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn while_nobody_answers_its_connection() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    for (name, ask) in ASKED {
        let worker = NativeWorker::start(&url, name, &[])?;
        let silent = accepted(&listener).await?;
        ends(worker, ask).await.with_context(|| format!("connecting, {name}"))?;
        drop(silent);
    }
    Ok(())
}

/// A connection that is never answered.
async fn accepted(listener: &TcpListener) -> Result<TcpStream> {
    let accepted = tokio::time::timeout(START, listener.accept()).await;
    Ok(accepted.context("the worker does not connect")??.0)
}

#[tokio::test]
async fn while_it_waits_to_connect_again() -> Result<()> {
    // A port at which nobody listens any more.
    let url = format!("http://{}", TcpListener::bind("127.0.0.1:0").await?.local_addr()?);
    for (name, ask) in ASKED {
        let mut worker = NativeWorker::start(&url, name, &[])?;
        tries_again(&mut worker).await?;
        ends(worker, ask).await.with_context(|| format!("waiting to connect, {name}"))?;
    }
    Ok(())
}

/// Waits until it says that it will connect again.
async fn tries_again(worker: &mut NativeWorker) -> Result<()> {
    let again = |line: &str| line.contains("trying again").then_some(());
    worker.process.wait_for_line("that it tries again", START, again).await
}
