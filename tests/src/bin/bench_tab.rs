//! Times full training steps in headless Chromium, in the Web Worker that volunteers run. One JSON object a line.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use protocol::{
    spec::{Backend, ModelSpec, Moments, OptimizerSpec, RunSpec},
    tab::{Command, SessionEvent},
    tensor::Encoding,
};
use serde_json::json;
use tests::{Browser, Coordinator, Tab};
use xtask::bench::{JOINED, SEQUENCES, SHAPES, Shape, VOCABULARY};

/// The worker speaks first, hears the command, and answers with `benched`; its words when it cannot.
const SCRIPT: &str = r#"
const [command, done] = arguments;
const worker = new Worker("/worker_loader.js", { type: "module" });
let asked = false;
worker.onmessage = ({ data }) => {
    if (!asked) {
        asked = true;
        worker.postMessage(command);
    }
    const { event } = JSON.parse(data);
    if (["benched", "failed", "refused"].includes(event)) {
        worker.terminate();
        done(data);
    }
};
worker.onerror = (error) => done(JSON.stringify({ event: "failed", words: error.message ?? "the worker crashed" }));
"#;

#[tokio::main]
async fn main() -> Result<()> {
    // Any run will do: only the pages are used.
    let coordinator = Coordinator::start("", &[]).await?;
    let browser = Browser::start().await?;
    for shape in &SHAPES {
        measure(&coordinator, &browser, shape, Backend::Cpu, 5).await?;
    }
    measure(&coordinator, &browser, &SHAPES[0], Backend::WebGpu, 3).await?;
    join(&browser).await
}

/// From the moment the address is given to a fresh browser until the coordinator has counted work of it. The
/// default run, with one micro-batch a step so that a step counts one.
async fn join(browser: &Browser) -> Result<()> {
    let coordinator = Coordinator::start("[training]\nmicro_batches = 1\n", &[]).await?;
    let tab = browser.tab().await?;
    let opened = Instant::now();
    tab.goto(&format!("{}/?join=1&backend=cpu", coordinator.url)).await?;
    coordinator.wait_for_run("a first step", |run| run.step > 0).await?;
    println!("{}", json!({ "where": "tab", "backend": "cpu", JOINED: opened.elapsed().as_secs_f64() }));
    Ok(())
}

/// In a fresh browser each, so that no number depends on what ran before.
async fn measure(
    coordinator: &Coordinator,
    browser: &Browser,
    shape: &Shape,
    backend: Backend,
    repeats: u32,
) -> Result<()> {
    let tab = browser.tab().await?;
    tab.goto(&coordinator.url).await?;
    let seconds = steps(&tab, Command::Bench { run: run(shape), backend, repeats }).await;
    let seconds = seconds.with_context(|| format!("{} on {backend:?}", shape.name))?;
    let median = median(&seconds).context("no step was timed")?;
    let tokens = f64::from(SEQUENCES * shape.context);
    println!(
        "{}",
        json!({
            "shape": shape.name, "where": "tab", "backend": backend,
            "tokens_per_second": tokens / median, "median_seconds": median, "seconds": seconds,
        })
    );
    Ok(())
}

async fn steps(tab: &Tab, command: Command) -> Result<Vec<f64>> {
    let answer = tab.execute_async(SCRIPT, json!([serde_json::to_string(&command)?])).await?;
    match serde_json::from_str(answer.as_str().context("the worker's answer is no text")?)? {
        SessionEvent::Benched { seconds } => Ok(seconds),
        other => bail!("the worker says {other:?}"),
    }
}

fn run(shape: &Shape) -> RunSpec {
    RunSpec {
        name: shape.name.to_owned(),
        model: ModelSpec {
            vocabulary: VOCABULARY,
            positions: shape.context,
            width: shape.width,
            heads: shape.heads,
            layers: shape.layers,
            tie_embeddings: false,
        },
        optimizer: OptimizerSpec {
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
        },
        sequences: SEQUENCES,
        context: shape.context,
        micro_batches: 1,
        recompute: false,
        wire: Encoding::F32,
        moments: Moments::Full,
        trains: true,
        cache_bytes: 0,
        blocks: None,
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}
