//! Texts over links: three workers hold a model with `mode = "serve"`, each behind a link of its own; and what texts cost a
//! run that trains. One JSON object a line.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use protocol::{
    spec::ModelSpec,
    view::{Phase, WorkerState},
};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tests::{
    Coordinator, LIMIT, models,
    runs::TinyRun,
    shaped_proxy::{Shape, ShapedProxy},
    wait_until,
};
use tokio::time::sleep;

/// There and back, in milliseconds.
const ROUND_TRIPS: [u64; 2] = [80, 140];
const BYTES_PER_SECOND: f64 = 50e6 / 8.0;
const STAGES: usize = 3;
const PROMPT: &str = "The coordinator relays and aggregates. ";
const TOKENS: usize = 64;
/// Steps over which the speed of training is measured.
const STEPS: u64 = 150;

/// With tied embeddings a model that has learned nothing repeats itself, and the first worker also holds the head: a token
/// passes one hop more.
fn model(tied: bool) -> ModelSpec {
    ModelSpec { vocabulary: 256, positions: 256, width: 256, heads: 8, layers: 12, tie_embeddings: tied }
}

#[tokio::main]
async fn main() -> Result<()> {
    let place = tempfile::tempdir()?;
    let [untied, tied] = ["untied", "tied"].map(|name| place.path().join(name));
    models::save(&untied, &model(false), 1)?;
    models::save(&tied, &model(true), 1)?;
    for round_trip in ROUND_TRIPS {
        for (folder, texts, drafts) in [(&untied, 1, 0), (&untied, 16, 0), (&tied, 1, 0), (&tied, 1, 8)] {
            println!("{}", over_links(folder, round_trip, texts, drafts).await?);
        }
    }
    println!("{}", killed(&untied).await?);
    println!("{}", beside_training().await?);
    Ok(())
}

fn toml(folder: &Path, serving: &str) -> String {
    format!(
        "name = \"bench\"\nmode = \"serve\"\n[model]\nfrom = '{}'\n[pipeline]\nstages = {STAGES}\nstart_with = {STAGES}\n\
         [serving]\nmost_tokens = 1024\nat_once = 16\n{serving}\n",
        folder.display()
    )
}

/// A coordinator whose workers are behind links, with the model on them.
async fn serving(folder: &Path, serving: &str, round_trip: u64) -> Result<(Coordinator, Vec<ShapedProxy>)> {
    let coordinator = Coordinator::start(&toml(folder, serving), &[]).await?;
    let shape = Shape { latency: Duration::from_millis(round_trip / 2), bytes_per_second: BYTES_PER_SECOND };
    let mut links = Vec::new();
    for number in 1..=STAGES {
        let link = ShapedProxy::start(&coordinator.url, shape).await?;
        coordinator.start_worker_at(&link.url, &format!("worker-{number}"))?;
        links.push(link);
    }
    coordinator.wait_for_run("the stages", |run| run.phase == Phase::Serving).await?;
    // A first text, so that connections and caches are warm.
    ask(&coordinator, 1, 2).await?.text().await?;
    Ok((coordinator, links))
}

async fn ask(coordinator: &Coordinator, texts: usize, tokens: usize) -> Result<Response> {
    wait_until("an answer", LIMIT, async || {
        let body =
            json!({ "prompt": PROMPT, "n": texts, "max_tokens": tokens, "temperature": 0, "stream": true });
        let answer =
            Client::new().post(format!("{}/v1/completions", coordinator.url)).json(&body).send().await?;
        Ok(answer.status().is_success().then_some(answer))
    })
    .await
}

/// When pieces of text came.
async fn arrivals(mut answer: Response) -> Result<Vec<Instant>> {
    let mut arrivals = Vec::new();
    let mut said = String::new();
    while let Some(chunk) = answer.chunk().await? {
        let chunk = String::from_utf8_lossy(&chunk);
        ensure!(!chunk.contains("\"error\""), "{chunk}");
        if chunk.contains("\"text\"") {
            arrivals.push(Instant::now());
        }
        said.push_str(&chunk);
    }
    ensure!(said.contains("[DONE]"), "the stream broke off");
    Ok(arrivals)
}

async fn traversals(coordinator: &Coordinator) -> Result<u64> {
    let (_, metrics) = coordinator.api.text("/metrics").await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("cohort_text_traversals_total "));
    Ok(line.context("no traversals are counted")?.parse()?)
}

async fn over_links(folder: &Path, round_trip: u64, texts: usize, drafts: u32) -> Result<Value> {
    let (coordinator, links) = serving(folder, &format!("drafts = {drafts}"), round_trip).await?;
    let bytes = || links.iter().map(ShapedProxy::bytes).sum::<u64>();
    let (before, sent) = (traversals(&coordinator).await?, bytes());
    let began = Instant::now();
    let arrivals = arrivals(ask(&coordinator, texts, TOKENS).await?).await?;
    let seconds = began.elapsed().as_secs_f64();
    let tokens = (texts * TOKENS) as f64;
    let first = arrivals.first().context("nothing was written")?.duration_since(began).as_secs_f64();
    Ok(json!({
        "what": "texts over links", "round_trip_seconds": round_trip as f64 / 1e3, "stages": STAGES,
        "text": if folder.ends_with("tied") { "repeats itself" } else { "any" },
        "texts": texts, "drafts": drafts,
        "tokens_per_second": tokens / seconds, "seconds_to_first_token": first,
        "traversals": traversals(&coordinator).await? - before,
        "bytes_per_token": (bytes() - sent) as f64 / tokens,
    }))
}

/// How long a text stands still after one of three stages was killed, with a fourth worker standing by.
async fn killed(folder: &Path) -> Result<Value> {
    let (coordinator, _links) = serving(folder, "drafts = 0", 80).await?;
    coordinator.start_worker("stands-by")?;
    let measured = |run: &protocol::view::RunView| {
        run.workers.iter().filter(|worker| worker.state == WorkerState::Spare).count() == 1
    };
    coordinator.wait_for_run("a spare", measured).await?;
    let answer = ask(&coordinator, 1, TOKENS).await?;
    let arrivals = tokio::spawn(arrivals(answer));
    sleep(Duration::from_secs(4)).await;
    let run = coordinator.api.run().await?;
    let middle = run.workers.iter().find(|worker| worker.hops.first().is_some_and(|hop| hop.index == 1));
    let killed = Instant::now();
    coordinator.kill_worker(&middle.context("nobody holds the second stage")?.name).await?;
    let arrivals = arrivals.await??;
    let gaps = arrivals.windows(2).filter(|pair| pair[1] > killed);
    let longest = gaps.map(|pair| pair[1].duration_since(pair[0]).as_secs_f64()).fold(0.0, f64::max);
    Ok(json!({ "what": "a killed stage", "round_trip_seconds": 0.08, "longest_gap_seconds": longest }))
}

/// Steps a second of a run that trains, with somebody asking all the time, of those without.
async fn beside_training() -> Result<Value> {
    let toml = |steps| TinyRun { workers: 2, width: 128, steps, ..TinyRun::default() }.toml();
    let mut seconds = [0.0; 2];
    let mut written = 0;
    for (asked, seconds) in [false, true].into_iter().zip(&mut seconds) {
        let toml = format!("{}\n[serving]\nwhere = \"workers\"\nshare = 0.2\n", toml(STEPS));
        let coordinator = Coordinator::start(&toml, &[]).await?;
        coordinator.start_workers(2)?;
        coordinator.wait_for_run("a step", |run| run.step >= 5).await?;
        let (began, first) = (Instant::now(), coordinator.api.run().await?.step);
        let training = coordinator.wait_for_run("the last steps", |run| run.step >= STEPS - 5);
        let asking = async {
            if !asked {
                return std::future::pending::<Result<()>>().await;
            }
            loop {
                let body = json!({ "prompt": "The ", "max_tokens": 16 });
                let url = format!("{}/v1/completions", coordinator.url);
                written +=
                    usize::from(Client::new().post(url).json(&body).send().await?.status().is_success());
            }
        };
        let last = tokio::select! {
            run = training => run?.step,
            failed = asking => return Err(failed.err().context("nobody asks")?),
        };
        *seconds = began.elapsed().as_secs_f64() / (last - first) as f64;
    }
    Ok(json!({
        "what": "beside training", "share": 0.2, "seconds_a_step": seconds[1], "without": seconds[0],
        "speed_ratio": seconds[0] / seconds[1], "texts": written,
    }))
}
