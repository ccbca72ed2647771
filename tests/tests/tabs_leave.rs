//! Real tabs that close, reload, lose the network or crash: the run goes on.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use protocol::view::{RunView, WorkerState};
use serde_json::json;
use tests::{Browser, Coordinator, LIMIT, Tab, alone, proxy::Proxy, runs::TinyRun, tab::test_id, wait_until};

/// Whether this worker holds a part.
fn trains(run: &RunView, name: &str) -> bool {
    run.workers.iter().any(|worker| worker.name == name && worker.state == WorkerState::Training)
}

/// Number of the worker of this name.
fn id(run: &RunView, name: &str) -> Option<u64> {
    run.workers.iter().find(|worker| worker.name == name).map(|worker| worker.id)
}

async fn joined(browser: &Browser, origin: &str, name: &str) -> Result<Tab> {
    let tab = browser.tab().await?;
    // Whoever loads the page keeps the workers it starts where the test can reach them.
    tab.before_load("window.started = []; window.Worker = class extends Worker { constructor(...a) { super(...a); started.push(this) } };").await?;
    tab.goto(&format!("{origin}/?join=1&backend=cpu&name={name}")).await?;
    Ok(tab)
}

/// A run of two stages that goes on until it is dropped, with a lease short enough to wait for.
async fn endless() -> Result<Coordinator> {
    let run =
        TinyRun { steps: 1_000_000, workers: 2, snapshot_every: 5, lease_seconds: 4.0, ..TinyRun::default() };
    Coordinator::start(&run.toml(), &[]).await
}

#[tokio::test]
async fn tabs_close_and_reload_and_the_run_goes_on() -> Result<()> {
    let _alone = alone().await;
    let coordinator = endless().await?;
    let browser = Browser::start().await?;
    let staying = joined(&browser, &coordinator.url, "staying").await?;
    let closing = joined(&browser, &coordinator.url, "closing").await?;
    coordinator
        .wait_for_run("both to train", |run| {
            run.step > 10 && trains(run, "staying") && trains(run, "closing")
        })
        .await?;

    // A third comes in time to stand by; one closes.
    let third = joined(&browser, &coordinator.url, "third").await?;
    let spare =
        |run: &RunView| run.workers.iter().any(|w| w.name == "third" && w.state == WorkerState::Spare);
    coordinator.wait_for_run("the third to stand by", spare).await?;
    let closed = Instant::now();
    drop(closing);
    let before = coordinator.api.run().await?.step;
    coordinator
        .wait_for_run("the third to have stepped in", |run| {
            run.step > before && trains(run, "third") && id(run, "closing").is_none()
        })
        .await?;
    println!(
        "a tab closed at step {before}; further than that after {:.2} s",
        closed.elapsed().as_secs_f64()
    );

    // Reloaded, a tab is somebody new and comes back by itself.
    let old = id(&coordinator.api.run().await?, "staying").context("it has gone")?;
    staying.execute("location.reload()", json!([])).await?;
    let before = coordinator.api.run().await?.step;
    coordinator
        .wait_for_run("the reloaded tab to train", |run| {
            run.step > before && trains(run, "staying") && id(run, "staying").is_some_and(|new| new > old)
        })
        .await?;
    for tab in [&staying, &third] {
        tab.ensure_quiet_console().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_tab_without_network_comes_back_when_it_has_one() -> Result<()> {
    let _alone = alone().await;
    let coordinator = endless().await?;
    coordinator.start_worker("native")?;
    let browser = Browser::start().await?;
    let network = Proxy::start(&coordinator.url).await?;
    let tab = joined(&browser, &network.url, "wanderer").await?;
    coordinator.wait_for_run("both to train", |run| run.step > 10 && trains(run, "wanderer")).await?;
    let old = id(&coordinator.api.run().await?, "wanderer").context("it has gone")?;
    network.cut();
    coordinator.wait_for_run("its lease to end", |run| id(run, "wanderer").is_none()).await?;
    let before = coordinator.api.run().await?.step;
    network.mend();
    let mended = Instant::now();
    coordinator
        .wait_for_run("it to train again", |run| {
            run.step > before && trains(run, "wanderer") && id(run, "wanderer").is_some_and(|new| new > old)
        })
        .await?;
    println!("back on the network; further than before after {:.2} s", mended.elapsed().as_secs_f64());
    let state = test_id("state");
    wait_until("the page to say that it trains", LIMIT, async || {
        Ok((tab.attribute(&state, "data-state").await?.as_deref() == Some("training")).then_some(()))
    })
    .await?;
    tab.ensure_quiet_console().await
}

#[tokio::test]
async fn a_crashed_training_program_starts_again_by_itself() -> Result<()> {
    let _alone = alone().await;
    let coordinator = endless().await?;
    coordinator.start_worker("native")?;
    let browser = Browser::start().await?;
    let tab = joined(&browser, &coordinator.url, "crashing").await?;
    coordinator.wait_for_run("both to train", |run| run.step > 10 && trains(run, "crashing")).await?;
    let run = coordinator.api.run().await?;
    let old = id(&run, "crashing").context("it has gone")?;
    // Four billion tokens do not fit into the memory of a module: its allocator gives up, as it does for a model
    // that is too large.
    let mut absurd = run.run.clone();
    (absurd.sequences, absurd.context, absurd.micro_batches) = (65_535, 65_535, 1);
    let order =
        protocol::tab::Command::Bench { run: absurd, backend: protocol::spec::Backend::Cpu, repeats: 1 };
    let crashed = Instant::now();
    tab.execute("started[0].postMessage(arguments[0])", json!([serde_json::to_string(&order)?])).await?;
    coordinator
        .wait_for_run("it to come back", |run| {
            trains(run, "crashing") && id(run, "crashing").is_some_and(|new| new > old)
        })
        .await?;
    println!("training again {:.2} s after the crash", crashed.elapsed().as_secs_f64());
    let started = tab.execute("return started.length", json!([])).await?;
    ensure!(started == 2, "{started} programs were started");
    Ok(())
}
