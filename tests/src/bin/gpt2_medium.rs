//! GPT-2 medium over four workers of which none could hold it: a few real steps, and each worker's peak memory beside
//! what the plan said. Minutes, and about 12 GB: `cargo run --bin gpt2_medium`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use protocol::view::RunView;
use tests::{Coordinator, resources::memory};

const WORKERS: usize = 4;
/// Megabytes that a worker's stage may take.
const CAP: u64 = 4000;
/// Steps that are looked at; the run would go on.
const STEPS: u64 = 4;

fn run_toml() -> Result<String> {
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").context("run it with cargo")?);
    let corpus = folder.join("data/wikitext-2/test.txt");
    Ok(format!(
        "name = \"gpt2-medium\"\n[model]\npreset = \"gpt2-medium\"\n[data]\nsource = '{}'\ntokenizer = \"gpt2\"\n\
         [training]\nsteps = 1000\nmicro_batches = 4\nsequences = 1\ncontext = 128\nlearning_rate = 3e-4\n\
         warmup_steps = 0\nvalidate_every = 0\n[pipeline]\nstart_with = {WORKERS}\nwire = \"f16\"\n\
         [snapshots]\nevery = {STEPS}\nmoments = \"none\"\n[session]\nlease_seconds = 600\n",
        corpus.display()
    ))
}

#[tokio::main]
async fn main() -> Result<()> {
    let coordinator = Coordinator::start(&run_toml()?, &[]).await?;
    for number in 1..=WORKERS {
        coordinator.start_worker_with(&format!("capped-{number}"), &["--memory", &CAP.to_string()])?;
    }
    let planned = coordinator.wait_for_run("a plan", |run| run.epoch > 0).await?;
    let whole: u64 = planned.workers.iter().map(|w| w.stage_bytes).sum();
    println!(
        "{:.1} million parameters; the stages take {:.2} GB in all, a worker may take {:.2}",
        planned.parameters as f64 / 1e6,
        whole as f64 / 1e9,
        CAP as f64 / 1e3
    );
    ensure!(whole > CAP * 1_000_000, "one worker could hold the model");
    let mut last = planned;
    for step in 1..=STEPS {
        let run = coordinator.wait_for_run("a step", |run| run.step >= step).await?;
        println!(
            "step {}: loss {:.4}, {:.1} tokens/s",
            run.step,
            run.train_loss.unwrap_or(f64::NAN),
            run.tokens_per_second
        );
        last = run;
    }
    // Making and sending it takes memory too.
    coordinator.wait_for_run("a snapshot", |run| run.snapshot_step == Some(STEPS)).await?;
    report(&coordinator, &last)?;
    let curve = coordinator.api.curve().await?;
    let fell =
        curve.first().zip(curve.last()).is_some_and(|(first, last)| last.train_loss < first.train_loss);
    ensure!(fell, "the loss did not fall: {curve:?}");
    Ok(())
}

fn report(coordinator: &Coordinator, run: &RunView) -> Result<()> {
    println!("| worker | layers | predicted | peak |");
    println!("|---|---:|---:|---:|");
    for (name, id) in coordinator.worker_processes() {
        let worker = run.workers.iter().find(|w| w.name == name).context("a worker is missing")?;
        let layers: u32 = worker.hops.iter().map(|h| h.part.end_layer - h.part.first_layer).sum();
        println!(
            "| {name} | {layers} | {:.2} GB | {:.2} GB |",
            worker.stage_bytes as f64 / 1e9,
            memory(id)?.most as f64 / 1e9
        );
    }
    Ok(())
}
