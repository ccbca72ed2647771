//! A pipeline is one process cut into pieces: same data, same seed, f32 on the wire, same learning curve and weights.

use anyhow::{Result, ensure};
use protocol::view::CurvePoint;
use tests::{Coordinator, alone, curves, runs::TinyRun, weights::Weights};

const STEPS: u64 = 50;
/// Of all losses, relative.
const LOSS_TOLERANCE: f64 = 1e-4;
/// Of all weights after the last step, absolute.
const WEIGHT_TOLERANCE: f32 = 1e-4;

/// Trains with this many native workers over real sockets.
async fn train(workers: usize, tied: bool) -> Result<(Vec<CurvePoint>, Weights)> {
    let run = TinyRun { tied, workers, steps: STEPS, ..TinyRun::default() };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    coordinator.start_workers(workers)?;
    let planned = coordinator.wait_for_run("a plan", |run| run.epoch > 0).await?;
    let holders = planned.workers.iter().filter(|worker| !worker.hops.is_empty()).count();
    ensure!(holders == workers, "{holders} workers hold the model, not {workers}");
    let curve = coordinator.wait_for_finish().await?;
    Ok((curve, Weights::load(&coordinator.checkpoint(STEPS))?))
}

async fn same_as_one_process(splits: &[usize], tied: bool) -> Result<()> {
    let _alone = alone().await;
    let (curve, weights) = train(1, tied).await?;
    let learned =
        curve.first().zip(curve.last()).is_some_and(|(first, last)| last.train_loss < first.train_loss);
    ensure!(learned, "one worker alone learns nothing: {curve:?}");
    for &workers in splits {
        let (split_curve, split_weights) = train(workers, tied).await?;
        let loss = curves::largest_relative_difference(&split_curve, &curve, STEPS)?;
        let weight = split_weights.largest_difference(&weights)?;
        println!(
            "{workers} stages, tied {tied}: losses within {loss:.1e} (relative), weights within {weight:.1e}"
        );
        ensure!(loss <= LOSS_TOLERANCE, "{workers} stages: losses differ by {loss}");
        ensure!(weight <= WEIGHT_TOLERANCE, "{workers} stages: weights differ by {weight}");
    }
    Ok(())
}

#[tokio::test]
async fn two_to_four_stages_equal_one_process() -> Result<()> {
    same_as_one_process(&[2, 3, 4], false).await
}

#[tokio::test]
async fn tied_embeddings_over_three_stages_equal_one_process() -> Result<()> {
    same_as_one_process(&[3], true).await
}
