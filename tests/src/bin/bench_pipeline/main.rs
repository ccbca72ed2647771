//! How full the pipe is: four workers of unequal speed whose computing is waited for, over slow links, through the
//! real coordinator. One JSON object a line.

mod shaped;
mod worker;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use protocol::{message::PassSeconds, view::RunView};
use serde_json::json;
use tests::Coordinator;

use shaped::Link;
use worker::{Emulated, Speed};

/// Speeds of the workers, in the order of joining.
const SPEEDS: [f64; 4] = [1.0, 2.0, 2.0, 4.0];
const LAYERS: u32 = 18;
/// Forward and backward of one layer on a worker of speed 1, in seconds. With the frames below, a stage in the middle
/// computes about as long as its link is busy.
const LAYER: PassSeconds = PassSeconds { forward: 0.02, backward: 0.04 };
/// Final norm, head and loss.
const HEAD: f64 = 0.006;
const MICRO_BATCHES: u32 = 128;
/// Steps that count, after one that does not.
const STEPS: u64 = 3;
/// Of the even split: after three in a row the planner would notice and mend it.
const EVEN_STEPS: u64 = 1;

/// 60 ms there and back, 50 Mbit/s, and one frame in a hundred late by a round trip, as when one of its many packets
/// is lost and sent again once the receiver has complained (fast retransmit).
const LINK: Link = Link {
    round_trip: Duration::from_millis(60),
    bytes_per_second: 50e6 / 8.0,
    lost_one_in: 100,
    retransmission: Duration::from_millis(60),
};

/// N 1, T 256, d 256 in f16: 131 kB a frame, 21 ms of the link.
fn run_toml() -> String {
    format!(
        "name = \"bench\"\n[model]\nlayers = {LAYERS}\nwidth = 256\nheads = 4\ncontext = 256\n[training]\n\
         micro_batches = {MICRO_BATCHES}\nsequences = 1\ncontext = 256\nsteps = 100000\nvalidate_every = 0\n\
         [pipeline]\nstages = 4\nwire = \"f16\"\n[snapshots]\nevery = 100000\n[session]\nlease_seconds = 600\n"
    )
}

#[tokio::main]
async fn main() -> Result<()> {
    let ours = measure(STEPS, |speed| scaled(LAYER, speed)).await.context("the measured split")?;
    println!(
        "{}",
        json!({
            "bench": "pipeline", "split": "measured", "layers": ours.layers,
            "efficiency": ours.efficiency, "median_step_seconds": ours.step_seconds,
            "optimum_step_seconds": ours.optimum_seconds,
            "optimum_efficiency": ours.efficiency * ours.step_seconds / ours.optimum_seconds,
            "of_optimum": ours.optimum_seconds / ours.step_seconds,
        })
    );
    // Who all say the same of themselves are given the same.
    let even = measure(EVEN_STEPS, |_| scaled(LAYER, 2.0)).await.context("the even split")?;
    println!(
        "{}",
        json!({
            "bench": "pipeline", "split": "even", "layers": even.layers,
            "efficiency": even.efficiency, "median_step_seconds": even.step_seconds,
        })
    );
    Ok(())
}

fn scaled(layer: PassSeconds, speed: f64) -> PassSeconds {
    PassSeconds { forward: layer.forward / speed, backward: layer.backward / speed }
}

struct Measured {
    layers: Vec<u32>,
    efficiency: f64,
    step_seconds: f64,
    /// What the planner's model of this plan, with what the workers measured of their links, comes to.
    optimum_seconds: f64,
}

async fn measure(steps: u64, told: impl Fn(f64) -> PassSeconds) -> Result<Measured> {
    let coordinator = Coordinator::start(&run_toml(), &[]).await?;
    let session = format!("{}/v1/session", coordinator.url.replacen("http", "ws", 1));
    let mut workers = Vec::new();
    for (number, speed) in SPEEDS.into_iter().enumerate() {
        let emulated = Speed { layer: scaled(LAYER, speed), head: HEAD / speed, told: told(speed) };
        let name = format!("speed {speed}");
        let worker = Emulated::connect(&session, &name, emulated, LINK, 2 * number as u64 + 2).await?;
        workers.push(tokio::spawn(worker.run()));
    }
    let mut seconds = Vec::new();
    let mut efficiencies = Vec::new();
    let tokens = |run: &RunView| {
        f64::from(run.run.sequences) * f64::from(run.run.context) * f64::from(run.run.micro_batches)
    };
    let mut planned = None;
    for step in 1..=steps + 1 {
        let run = coordinator.wait_for_run("a step", |run| run.step >= step).await?;
        ensure!(run.step == step && run.epoch == 1, "a step went by unseen, or the plan changed");
        // The first step has the coordinator's own start in it.
        if step > 1 {
            efficiencies.push(run.efficiency.context("no efficiency")?);
            let curve = coordinator.api.curve().await?;
            let point = curve.iter().find(|p| p.step == step).context("no point")?;
            seconds.push(tokens(&run) / point.tokens_per_second);
        }
        planned = Some(run);
    }
    let run = planned.context("no step was seen")?;
    for worker in workers {
        worker.abort();
    }
    Ok(Measured {
        layers: run
            .workers
            .iter()
            .map(|w| w.hops.iter().map(|h| h.part.end_layer - h.part.first_layer).sum())
            .collect(),
        efficiency: median(efficiencies),
        step_seconds: median(seconds),
        optimum_seconds: run.predicted_step_seconds.context("no prediction")?,
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
