//! The simulator's word on participation and round time against real processes over shaped links.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use coordinator::{commands::simulate::predict, config::RunConfig, data::Dataset};
use protocol::view::{CurvePoint, RunView};
use simulation::Speed;
use tests::{
    Coordinator, alone,
    runs::TinyBlocks,
    shaped_proxy::{Shape, ShapedProxy},
};

/// Rounds looked at, after the first: that one has links and files to get used to.
const ROUNDS: u64 = 6;
const LOCAL_STEPS: u32 = 5;
/// A round's seconds may lie off by this share: TCP, HTTP and a busy computer are not in the simulator.
const TIME_TOLERANCE: f64 = 0.3;
const PARTICIPATION_TOLERANCE: f64 = 0.1;
const LATENCY: Duration = Duration::from_millis(60);

/// Seconds of each round, from what the curve says of its tokens.
fn seconds(curve: &[CurvePoint], workers: usize) -> Result<Vec<f64>> {
    let tokens = f64::from(4 * 32 * LOCAL_STEPS);
    let of = |point: &CurvePoint| {
        let accepted = point.participation? * workers as f64;
        Some(tokens * accepted / point.tokens_per_second)
    };
    curve.iter().map(of).collect::<Option<_>>().context("a point of the curve lacks participation")
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn some_rounds(run: &RunView) -> bool {
    run.rounds.as_ref().is_some_and(|rounds| rounds.round >= 3)
}

/// Trains with a worker on each of these links, and holds the run against its prediction. Gives the participation.
async fn as_predicted(rounds: &'static str, lease_seconds: f64, bytes_per_second: &[f64]) -> Result<f64> {
    let run = TinyBlocks {
        steps: (ROUNDS + 1) * u64::from(LOCAL_STEPS),
        local_steps: LOCAL_STEPS,
        lease_seconds,
        rounds,
        ..TinyBlocks::default()
    };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    let mut links = Vec::new();
    for (number, bytes_per_second) in (1..).zip(bytes_per_second) {
        let shape = Shape { latency: LATENCY, bytes_per_second: *bytes_per_second };
        let link = ShapedProxy::start(&coordinator.url, shape).await?;
        coordinator.start_worker_at(&link.url, &format!("native-{number}"))?;
        links.push(link);
    }
    // What a step took is the workers' own word, which goes with them at the end; the links are known.
    let during = coordinator.wait_for_run("some rounds", some_rounds).await?;
    let steps: Vec<f64> = during.workers.iter().map(|w| w.timings.busy() / f64::from(LOCAL_STEPS)).collect();
    ensure!(steps.len() == bytes_per_second.len(), "all are there: {during:?}");
    let step_seconds = mean(&steps);
    let curve = coordinator.wait_for_finish().await?;
    let after = coordinator.api.run().await?;
    let view = after.rounds.as_ref().context("the run is not in block mode")?;

    let folder = tempfile::tempdir()?;
    let config = RunConfig::parse(&run.toml(), "run.toml").map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
    let data = &config.data;
    let dataset = Dataset::prepare(
        &data.source,
        data.tokenizer_choice(),
        data.validation_fraction,
        folder.path(),
        None,
    )?;
    let speed =
        |bytes: &f64| Speed { step_seconds, latency: LATENCY.as_secs_f64(), down: *bytes, up: *bytes };
    let speeds: Vec<Speed> = bytes_per_second.iter().map(speed).collect();
    let predicted = predict(&config, &dataset, &speeds)?;

    let found = mean(&seconds(&curve, speeds.len())?[1..]);
    let participation = view.mean_participation.context("no round has closed")?;
    let per_delta = |bytes: u64| bytes as f64 / view.accepted.max(1) as f64;
    println!(
        "round {found:.3} s, predicted {:.3} ({:+.1} %); participation {participation:.3}, predicted {:.3}; bytes down \
         {:.0}, predicted {:.0}; up {:.0}, predicted {:.0}",
        predicted.round_seconds,
        100.0 * (predicted.round_seconds / found - 1.0),
        predicted.participation,
        per_delta(view.bytes_down),
        predicted.bytes_down,
        per_delta(view.bytes_up),
        predicted.bytes_up,
    );
    ensure!((predicted.round_seconds / found - 1.0).abs() < TIME_TOLERANCE, "the time of a round is off");
    ensure!(
        (predicted.participation - participation).abs() < PARTICIPATION_TOLERANCE,
        "the participation is off"
    );
    // Joining costs bytes that a prediction leaves out.
    ensure!((predicted.bytes_up / per_delta(view.bytes_up) - 1.0).abs() < 0.3, "the bytes up are off");
    Ok(participation)
}

#[tokio::test]
async fn rounds_that_wait_for_all_take_as_long_as_the_simulator_says() -> Result<()> {
    let _alone = alone().await;
    let participation = as_predicted("longest_seconds = 600\n", 60.0, &[400e3, 300e3, 200e3]).await?;
    ensure!(participation == 1.0, "{participation}");
    Ok(())
}

#[tokio::test]
async fn a_deadline_leaves_out_whom_the_simulator_says() -> Result<()> {
    let _alone = alone().await;
    // A lease ends before a deadline does.
    let participation =
        as_predicted("deadline = 2.5\ndelta = \"int8\"\n", 2.4, &[400e3, 400e3, 30e3]).await?;
    ensure!(participation < 0.75, "{participation}");
    Ok(())
}
