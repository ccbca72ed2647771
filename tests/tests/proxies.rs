//! Workers that reach the coordinator through a reverse proxy.

use anyhow::{Result, ensure};
use tests::{Coordinator, alone, proxy::Proxy, runs::TinyRun};

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
