//! A tab on WebGPU takes the same steps as a native worker on the CPU.
//!
//! The adapter is a software one, so this says nothing of speed.

use anyhow::{Result, ensure};
use protocol::spec::Backend;
use tests::{Browser, Coordinator, alone, curves, runs::TinyRun, weights::Weights};

const STEPS: u64 = 10;
/// Of all losses, relative, step by step.
const LOSS_TOLERANCE: f64 = 1e-3;
/// AdamW's first steps divide by gradients near zero, which magnifies rounding.
const WEIGHT_TOLERANCE: f32 = 5e-3;

#[tokio::test]
async fn webgpu_equals_cpu_step_by_step() -> Result<()> {
    let _alone = alone().await;
    // A software adapter takes its time over every kernel: as few as show that gradients add up over micro-batches.
    let run = TinyRun { layers: 1, width: 16, micro_batches: 2, steps: STEPS, ..TinyRun::default() }.toml();

    let reference = Coordinator::start(&run, &[]).await?;
    reference.start_worker("reference")?;
    let reference_curve = reference.wait_for_finish().await?;
    let reference_weights = Weights::load(&reference.checkpoint(STEPS))?;
    drop(reference);

    let coordinator = Coordinator::start(&run, &[]).await?;
    let browser = Browser::start().await?;
    let tab = browser.tab().await?;
    tab.goto(&format!("{}/?join=1&backend=webgpu&software-gpu=1&name=gpu", coordinator.url)).await?;
    let planned = coordinator.wait_for_run("a plan", |run| run.epoch > 0).await?;
    ensure!(planned.workers.iter().all(|worker| worker.backend == Some(Backend::WebGpu)), "{planned:#?}");

    let curve = coordinator.wait_for_finish().await?;
    let loss = curves::largest_relative_difference(&curve, &reference_curve, STEPS)?;
    let weight = Weights::load(&coordinator.checkpoint(STEPS))?.largest_difference(&reference_weights)?;
    println!("WebGPU: losses within {loss:.1e} (relative), weights within {weight:.1e}");
    ensure!(loss <= LOSS_TOLERANCE, "losses differ by {loss}");
    ensure!(weight <= WEIGHT_TOLERANCE, "weights differ by {weight}");
    tab.ensure_quiet_console().await
}
