//! A native program and a browser's tab train one model together, and it equals one process.

use anyhow::{Result, ensure};
use protocol::message::WorkerKind;
use tests::{Browser, Coordinator, alone, curves, runs::TinyRun, weights::Weights};

const STEPS: u64 = 30;
/// Of all losses, relative. The tab adds and multiplies in another order than native SIMD does.
const LOSS_TOLERANCE: f64 = 1e-4;
const WEIGHT_TOLERANCE: f32 = 1e-3;

#[tokio::test]
async fn a_program_and_a_tab_train_together() -> Result<()> {
    let _alone = alone().await;
    let run = |workers| TinyRun { workers, steps: STEPS, ..TinyRun::default() }.toml();

    let reference = Coordinator::start(&run(1), &[]).await?;
    reference.start_worker("reference")?;
    let reference_curve = reference.wait_for_finish().await?;
    let reference_weights = Weights::load(&reference.checkpoint(STEPS))?;
    drop(reference);

    let coordinator = Coordinator::start(&run(2), &[]).await?;
    coordinator.start_worker("native")?;
    let browser = Browser::start().await?;
    let tab = browser.tab().await?;
    tab.goto(&format!("{}/?join=1&backend=cpu&name=tab", coordinator.url)).await?;

    let planned = coordinator.wait_for_run("a plan", |run| run.epoch > 0).await?;
    let holds = |kind| planned.workers.iter().any(|worker| worker.kind == kind && !worker.hops.is_empty());
    ensure!(holds(WorkerKind::Native) && holds(WorkerKind::Browser), "both must hold a part: {planned:#?}");

    let curve = coordinator.wait_for_finish().await?;
    let loss = curves::largest_relative_difference(&curve, &reference_curve, STEPS)?;
    let weight = Weights::load(&coordinator.checkpoint(STEPS))?.largest_difference(&reference_weights)?;
    println!("mixed: losses within {loss:.1e} (relative), weights within {weight:.1e}");
    ensure!(loss <= LOSS_TOLERANCE, "losses differ by {loss}");
    ensure!(weight <= WEIGHT_TOLERANCE, "weights differ by {weight}");
    tab.ensure_quiet_console().await
}
