//! Real processes killed with SIGKILL: workers and the coordinator.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use protocol::view::{Phase, RunView};
use tests::{Coordinator, alone, runs::TinyRun, weights::Weights};

/// So many that the run is far from its end when somebody is killed.
const STEPS: u64 = 240;
/// Of all weights after the last step, absolute; the splits differ before and after a loss.
const WEIGHT_TOLERANCE: f32 = 1e-4;

fn tiny(workers: usize) -> TinyRun {
    TinyRun { workers, steps: STEPS, snapshot_every: 10, ..TinyRun::default() }
}

async fn undisturbed(workers: usize) -> Result<(Weights, String)> {
    let coordinator = Coordinator::start(&tiny(workers).toml(), &[]).await?;
    coordinator.start_workers(workers)?;
    coordinator.wait_for_finish().await?;
    let state = state(&coordinator.api.run().await?)?;
    Ok((Weights::load(&coordinator.checkpoint(STEPS))?, state))
}

fn state(run: &RunView) -> Result<String> {
    ensure!(run.snapshot_step == Some(STEPS), "the last snapshot is of step {:?}", run.snapshot_step);
    run.snapshot_state.clone().context("the snapshot has no state hash")
}

#[tokio::test]
async fn a_killed_worker_is_replaced_by_a_spare_and_the_weights_are_the_same() -> Result<()> {
    let _alone = alone().await;
    let (expected, _) = undisturbed(2).await?;
    let coordinator = Coordinator::start(&tiny(2).toml(), &[]).await?;
    coordinator.start_workers(3)?;
    for (name, step) in [("native-1", 15), ("native-3", 35)] {
        coordinator.wait_for_run("some steps", |run| run.step >= step).await?;
        let killed = Instant::now();
        coordinator.kill_worker(name).await?;
        let before = coordinator.api.run().await?.step;
        if name == "native-3" {
            // Nobody is left to step in: the run waits until somebody comes.
            coordinator.wait_for_run("the run to wait", |run| run.phase == Phase::Waiting).await?;
            coordinator.start_worker("late")?;
        }
        let named = |run: &RunView| run.workers.iter().any(|worker| worker.name == name);
        coordinator.wait_for_run("a step without it", |run| !named(run) && run.step > before).await?;
        println!(
            "{name} killed at step {before}; further than that after {:.2} s",
            killed.elapsed().as_secs_f64()
        );
    }
    let curve = coordinator.wait_for_finish().await?;
    let steps: Vec<u64> = curve.iter().map(|point| point.step).collect();
    ensure!(steps == (1..=STEPS).collect::<Vec<_>>(), "each step once: {steps:?}");
    let difference = Weights::load(&coordinator.checkpoint(STEPS))?.largest_difference(&expected)?;
    println!("weights differ by {difference:.1e}");
    ensure!(difference <= WEIGHT_TOLERANCE, "weights differ by {difference}");
    Ok(())
}

#[tokio::test]
async fn a_killed_coordinator_resumes_to_the_same_state_hash_and_its_workers_come_back() -> Result<()> {
    let _alone = alone().await;
    let (_, expected) = undisturbed(2).await?;
    let mut coordinator = Coordinator::start(&tiny(2).toml(), &[]).await?;
    coordinator.start_workers(2)?;
    // Before the first snapshot, between two, and again soon after coming back.
    for step in [4, 27, 33] {
        coordinator.wait_for_run("some steps", |run| run.step >= step).await?;
        let killed = Instant::now();
        coordinator = coordinator.kill_and_resume().await?;
        coordinator.wait_for_run("as many steps again", |run| run.step >= step).await?;
        println!(
            "coordinator killed at step {step}; there again after {:.2} s",
            killed.elapsed().as_secs_f64()
        );
    }
    coordinator.wait_for_finish().await?;
    let found = state(&coordinator.api.run().await?)?;
    ensure!(found == expected, "the state hash is {found}, undisturbed it is {expected}");
    Ok(())
}
