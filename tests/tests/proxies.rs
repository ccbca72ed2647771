//! Workers that reach the coordinator through a reverse proxy.

use anyhow::{Result, ensure};
use tests::{Browser, Coordinator, LIMIT, alone, proxy::Proxy, runs::TinyRun, tab::test_id, wait_until};

#[tokio::test]
async fn a_native_worker_trains_and_stores_snapshots_under_a_path() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 10, snapshot_every: 5, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let proxy = Proxy::start_under(&coordinator.url, "/cohort").await?;
    ensure!(proxy.url.ends_with("/cohort"), "{}", proxy.url);
    coordinator.start_worker_at(&proxy.url, "behind a proxy")?;
    coordinator.wait_for_finish().await?;
    ensure!(coordinator.checkpoint(10).is_file(), "its last snapshot has not come through the proxy");
    Ok(())
}

/// Every address that the pages use is beside them: files, the program in its Web Worker, events, blobs, orders.
#[tokio::test]
async fn a_tab_trains_and_an_organizer_gives_orders_under_a_path() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: 1_000_000, snapshot_every: 5, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let proxy = Proxy::start_under(&coordinator.url, "/cohort").await?;
    let browser = Browser::start().await?;
    let (tab, organizer) = (browser.tab().await?, browser.tab().await?);

    tab.goto(&format!("{}/?join=1&backend=cpu&name=first", proxy.url)).await?;
    coordinator.wait_for_run("a snapshot of the tab", |run| run.snapshot_step.is_some()).await?;

    organizer.goto(&coordinator.organizer.replace(&coordinator.url, &proxy.url)).await?;
    let link = test_id("invite-link");
    wait_until("the invitation", LIMIT, async || organizer.attribute(&link, "value").await).await.and_then(
        |invited| {
            ensure!(invited == format!("{}/", proxy.url), "volunteers are invited to {invited}");
            Ok(())
        },
    )?;
    organizer.click(&test_id("stop-run")).await?;
    organizer.click(&test_id("confirm-yes")).await?;
    organizer.wait_for_text(&test_id("phase"), |text| text.eq_ignore_ascii_case("stopped")).await?;
    tab.ensure_quiet_console().await?;
    organizer.ensure_quiet_console().await
}
