//! A real coordinator for as many minutes as asked, half of them in each mode, while workers and strangers come and go:
//! whether what it holds grows, and whether the run goes on. Prints a table for each mode; fails where something grew
//! beyond its bound.

mod churn;
mod sample;
mod strangers;
mod verdict;

use std::{env, time::Duration};

use anyhow::{Context, Result, ensure};
use tests::{
    Coordinator, LIMIT,
    runs::{TinyBlocks, TinyRun},
    wait_until,
};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{churn::Churn, sample::Sample, verdict::Verdict};

/// Steps that no soak comes to.
const ENDLESS: u64 = 100_000_000;
/// Between two disturbances, and between two looks at the coordinator.
const TICK: Duration = Duration::from_secs(1);
/// Below `[session]`: parts of snapshots that were given up stay for as long.
const STEP_DEADLINE: &str = "step_deadline_seconds = 20\n";
/// Files that may stay open when everybody has gone: what the store and the log keep.
const FILES_LEFT: f64 = 8.0;

#[tokio::main]
async fn main() -> Result<()> {
    let minutes: f64 =
        env::args().nth(1).context("give the minutes")?.parse().context("the minutes are no number")?;
    ensure!(minutes >= 0.5, "in less than half a minute nothing can be seen to grow");
    let half = Duration::from_secs_f64(minutes * 60.0 / 2.0);
    let pipeline = TinyRun { workers: 2, steps: ENDLESS, lease_seconds: 6.0, ..TinyRun::default() };
    let blocks = TinyBlocks {
        steps: ENDLESS,
        lease_seconds: 6.0,
        blocks: 2,
        rounds: "deadline = 15",
        ..TinyBlocks::default()
    };
    let mut verdicts = Vec::new();
    let pipeline = pipeline.toml() + STEP_DEADLINE;
    for (mode, run) in [("pipeline", pipeline), ("block", blocks.toml())] {
        let verdict = soak(mode, &run, half).await?;
        println!("{verdict}");
        verdicts.push(verdict);
    }
    let faults: Vec<String> = verdicts.iter().flat_map(Verdict::faults).collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// One coordinator for so long.
async fn soak(mode: &'static str, run: &str, time: Duration) -> Result<Verdict> {
    let coordinator = Coordinator::start(run, &[]).await?;
    let before = Sample::take(&coordinator, Duration::ZERO).await?;
    let mut churn = Churn::new(&coordinator)?;
    coordinator.wait_for_run("the first step", |run| run.step > 0).await?;

    let (start, mut samples) = (Instant::now(), Vec::new());
    let mut ticks = interval(TICK);
    // Where the machine is too slow for so many, fewer come.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while start.elapsed() < time {
        ticks.tick().await;
        churn.next().await?;
        samples.push(Sample::take(&coordinator, start.elapsed()).await?);
    }
    let disturbed = churn.count();
    drop(churn);
    let gone = wait_until("everybody to be gone and their files with them", LIMIT, async || {
        let now = Sample::take(&coordinator, start.elapsed()).await?;
        Ok((now.workers == 0.0 && now.files <= before.files + FILES_LEFT).then_some(now))
    })
    .await?;
    let panic = coordinator.process.lines().into_iter().find(|line| line.contains("panicked"));
    ensure!(panic.is_none(), "{panic:?}");
    Verdict::of(mode, disturbed, &samples, &gone)
}
