//! Three tabs of real Chromium train three blocks apart; one is closed in the middle of a round and comes back.

use anyhow::{Context, Result, ensure};
use protocol::{message::WorkerKind, view::RunView};
use tests::{Browser, Coordinator, LIMIT, Tab, alone, cohort, runs::TinyBlocks, tab::test_id, wait_until};

/// How far below ln(vocabulary) the cross-entropy from noise must come, in nats.
const FALL: f64 = 1.5;

async fn joined(browser: &Browser, coordinator: &Coordinator, name: &str) -> Result<Tab> {
    let tab = browser.tab().await?;
    tab.goto(&format!("{}/?join=1&backend=cpu&name={name}", coordinator.url)).await?;
    Ok(tab)
}

/// The block that a tab is at in the round under way, if some of its work has been accepted.
fn block(run: &RunView, name: &str) -> Option<u32> {
    let worker = run.workers.iter().find(|worker| worker.name == name)?;
    worker.replica.filter(|replica| replica.accepted > 0)?.block
}

/// Rounds done.
fn done(run: &RunView) -> u64 {
    run.rounds.as_ref().map_or(0, |rounds| rounds.round)
}

#[tokio::test]
async fn three_tabs_train_a_block_each_and_one_comes_and_goes() -> Result<()> {
    let _alone = alone().await;
    let run = TinyBlocks {
        steps: 1_000_000,
        local_steps: 10,
        validate_every: 50,
        lease_seconds: 6.0,
        source: "webster".into(),
        rounds: "moments = \"fresh\"\nlongest_seconds = 60\n",
        ..TinyBlocks::default()
    };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let browser = Browser::start().await?;
    let names = ["one", "two", "three"];
    let mut tabs = Vec::new();
    for name in names {
        tabs.push(joined(&browser, &coordinator, name).await?);
    }
    let all_at_work = |run: &RunView| {
        let mut blocks: Vec<u32> = names.iter().filter_map(|name| block(run, name)).collect();
        blocks.sort_unstable();
        blocks == [0, 1, 2]
    };
    let run = coordinator.wait_for_run("each tab at a block of its own", all_at_work).await?;
    ensure!(run.workers.iter().all(|worker| worker.kind == WorkerKind::Browser), "{run:?}");

    // Closed in the middle of a round; the blocks of the others go on.
    drop(tabs.remove(1));
    let before = done(&coordinator.api.run().await?);
    let named = |run: &RunView, name: &str| run.workers.iter().any(|worker| worker.name == name);
    coordinator.wait_for_run("rounds without it", |run| !named(run, "two") && done(run) > before + 1).await?;
    tabs.push(joined(&browser, &coordinator, "two").await?);
    coordinator.wait_for_run("it to be back at a block", |run| block(run, "two").is_some()).await?;

    let knowing_nothing = 256f64.ln();
    let learned = coordinator
        .wait_for_run("the cross-entropy from noise to fall", |run| {
            run.validation_loss.is_some_and(|loss| loss < knowing_nothing - FALL)
        })
        .await?;
    let view = learned.rounds.as_ref().context("the run is not in block mode")?;
    println!(
        "round {}: from noise {:?}, participation {:?}, a round takes {:?} s",
        view.round, learned.validation_loss, view.mean_participation, view.round_seconds
    );
    for tab in &tabs {
        let state = test_id("state");
        wait_until("the page to say that it trains", LIMIT, async || {
            Ok((tab.attribute(&state, "data-state").await?.as_deref() == Some("training")).then_some(()))
        })
        .await?;
        tab.ensure_quiet_console().await?;
    }

    // What the tabs sent can be done again natively, within the stated tolerance.
    coordinator.api.order("stop").await?;
    wait_until("the run to stop", LIMIT, async || {
        let run = coordinator.api.run().await?;
        Ok((run.phase == protocol::view::Phase::Stopped).then_some(()))
    })
    .await?;
    let rechecked = cohort::run(&["recheck", &coordinator.data().display().to_string()], LIMIT).await?;
    println!("{}", rechecked.stdout);
    ensure!(rechecked.code == Some(0), "{}{}", rechecked.stdout, rechecked.stderr);
    Ok(())
}
