//! Texts that the workers write who hold the model: alone with mode = "serve", and beside training.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use engine::generate::{Request, Sampling};
use protocol::{
    spec::ModelSpec,
    view::{Phase, RunView, WorkerState},
};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tests::{
    Browser, Coordinator, LIMIT, alone, cohort, curves, models, runs::TinyRun, wait_until, weights::Weights,
};

/// Of the model's weights.
const SEED: u64 = 3;
const PROMPT: &str = "A class of thirty ";
const TOKENS: usize = 200;

fn model(tied: bool) -> ModelSpec {
    // The prompt and its continuation outgrow the positions: the window slides, too.
    ModelSpec { vocabulary: 256, positions: 192, width: 32, heads: 4, layers: 4, tie_embeddings: tied }
}

/// A run that only serves the model in `folder`, cut into so many stages.
fn serves(folder: &Path, stages: usize) -> String {
    format!(
        "name = \"tiny\"\nmode = \"serve\"\n[model]\nfrom = '{}'\n[pipeline]\nstages = {stages}\nstart_with = {stages}\n",
        folder.display()
    )
}

async fn ask(coordinator: &Coordinator, body: &Value) -> Result<Response> {
    let request = Client::new().post(format!("{}/v1/completions", coordinator.url)).json(body);
    Ok(request.timeout(LIMIT).send().await?)
}

/// The answer, asked for until the model can be asked.
async fn answer(coordinator: &Coordinator, body: &Value) -> Result<Response> {
    wait_until("an answer", LIMIT, async || {
        let answer = ask(coordinator, body).await?;
        Ok((answer.status() != StatusCode::SERVICE_UNAVAILABLE).then_some(answer))
    })
    .await
}

async fn text(coordinator: &Coordinator, body: &Value) -> Result<String> {
    let answer: Value = answer(coordinator, body).await?.error_for_status()?.json().await?;
    Ok(answer["choices"][0]["text"].as_str().context("no text")?.to_owned())
}

fn drawn(stream: bool) -> Value {
    json!({ "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 1, "seed": 5, "stream": stream })
}

/// What one process writes when it is asked the same.
fn expected(model: &ModelSpec) -> Result<String> {
    let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 5 };
    models::text(model, SEED, Request::new(PROMPT.bytes().map(u32::from).collect(), TOKENS, sampling))
}

/// A text that comes piece by piece.
struct Streamed {
    response: Response,
    rest: String,
    text: String,
    over: bool,
}

impl Streamed {
    async fn begin(coordinator: &Coordinator) -> Result<Self> {
        let response = answer(coordinator, &drawn(true)).await?.error_for_status()?;
        Ok(Self { response, rest: String::new(), text: String::new(), over: false })
    }

    /// Reads on until there are so many characters, or the end.
    async fn read(&mut self, characters: usize) -> Result<()> {
        while !self.over && self.text.chars().count() < characters {
            let chunk = self.response.chunk().await?.context("the stream ends before the text")?;
            self.rest += std::str::from_utf8(&chunk)?;
            while let Some((event, rest)) = self.rest.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.rest = rest;
                match event.strip_prefix("data: ") {
                    Some("[DONE]") => self.over = true,
                    Some(data) => {
                        let data: Value = serde_json::from_str(data)?;
                        ensure!(data.get("error").is_none(), "{data}");
                        self.text += data["choices"][0]["text"].as_str().unwrap_or_default();
                    }
                    // A comment.
                    None => {}
                }
            }
        }
        Ok(())
    }

    async fn whole(mut self) -> Result<String> {
        self.read(usize::MAX).await?;
        Ok(self.text)
    }
}

/// The workers that hold stages, from the embedding to the head.
fn holders(run: &RunView) -> Vec<String> {
    let mut holders: Vec<_> = run
        .workers
        .iter()
        .filter(|worker| worker.state == WorkerState::Serving)
        .filter_map(|worker| Some((worker.hops.first()?.index, worker.name.clone())))
        .collect();
    holders.sort_unstable();
    holders.into_iter().map(|(_, name)| name).collect()
}

async fn serving(coordinator: &Coordinator, stages: usize) -> Result<Vec<String>> {
    let run = coordinator
        .wait_for_run("the stages", |run| run.phase == Phase::Serving && holders(run).len() == stages)
        .await?;
    Ok(holders(&run))
}

#[tokio::test]
async fn they_write_what_one_process_writes_however_the_model_is_cut() -> Result<()> {
    let _alone = alone().await;
    let place = tempfile::tempdir()?;
    for (stages, tied) in [(1, false), (2, true), (4, false)] {
        let (model, folder) = (model(tied), place.path().join(format!("{stages}")));
        models::save(&folder, &model, SEED)?;
        let coordinator = Coordinator::start(&serves(&folder, stages), &[]).await?;
        let early = ask(&coordinator, &drawn(false)).await?;
        ensure!(
            early.status() == StatusCode::SERVICE_UNAVAILABLE && early.headers().contains_key("retry-after")
        );
        coordinator.start_workers(stages)?;
        ensure!(text(&coordinator, &drawn(false)).await? == expected(&model)?, "{stages} stages");

        // Several at a time, with the prompt's own probabilities.
        let body = json!({
            "prompt": ["abcabcabcabc", "x"], "n": 2, "max_tokens": 30, "seed": 1, "echo": true, "logprobs": 2,
        });
        let answer: Value = ask(&coordinator, &body).await?.error_for_status()?.json().await?;
        let choices = answer["choices"].as_array().context("no choices")?;
        ensure!(choices.len() == 4, "{answer}");
        for choice in choices {
            let scored = choice["logprobs"]["token_logprobs"].as_array().context("no scores")?;
            let tokens = choice["logprobs"]["tokens"].as_array().context("no tokens")?;
            ensure!(scored.len() == tokens.len() && tokens.len() > 30, "{choice}");
            ensure!(
                scored[0].is_null()
                    && scored[1..].iter().all(|log| log.as_f64().is_some_and(|log| log < 0.0))
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_stage_that_is_killed_in_mid_sentence_costs_no_token() -> Result<()> {
    let _alone = alone().await;
    let place = tempfile::tempdir()?;
    let model = model(false);
    models::save(place.path(), &model, SEED)?;
    let expected = expected(&model)?;
    let coordinator = Coordinator::start(&serves(place.path(), 3), &[]).await?;
    coordinator.start_workers(4)?;
    for (stage, characters) in [(0, 20), (1, 60), (2, 100)] {
        let holders = serving(&coordinator, 3).await?;
        let mut streamed = Streamed::begin(&coordinator).await?;
        streamed.read(characters).await?;
        let killed = Instant::now();
        coordinator.kill_worker(&holders[stage]).await?;
        let before = streamed.text.chars().count();
        streamed.read(before + 1).await?;
        eprintln!("stage {stage}: the text goes on after {:.2?}", killed.elapsed());
        ensure!(streamed.whole().await? == expected, "stage {stage}");
        coordinator.start_worker(&format!("replaces-{stage}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn a_tab_that_is_closed_in_mid_sentence_costs_no_token() -> Result<()> {
    let _alone = alone().await;
    let place = tempfile::tempdir()?;
    let model = model(false);
    models::save(place.path(), &model, SEED)?;
    let coordinator = Coordinator::start(&serves(place.path(), 2), &[]).await?;
    coordinator.start_worker("native")?;
    let browser = Browser::start().await?;
    let tab = browser.tab().await?;
    tab.goto(&format!("{}/?join=1&backend=cpu&name=tab", coordinator.url)).await?;
    let holders = serving(&coordinator, 2).await?;
    ensure!(holders.iter().any(|name| name == "tab"), "{holders:?}");
    coordinator.start_worker("spare")?;
    coordinator.wait_for_run("a spare", |run| run.workers.len() == 3).await?;
    let mut streamed = Streamed::begin(&coordinator).await?;
    streamed.read(40).await?;
    drop(tab);
    drop(browser);
    ensure!(streamed.whole().await? == expected(&model)?);
    Ok(())
}

#[tokio::test]
async fn over_a_restart_of_the_coordinator_no_token_is_wrong() -> Result<()> {
    let _alone = alone().await;
    let place = tempfile::tempdir()?;
    let model = model(false);
    models::save(place.path(), &model, SEED)?;
    let expected = expected(&model)?;
    let coordinator = Coordinator::start(&serves(place.path(), 2), &[]).await?;
    coordinator.start_workers(2)?;
    serving(&coordinator, 2).await?;
    let mut streamed = Streamed::begin(&coordinator).await?;
    streamed.read(40).await?;
    let coordinator = coordinator.kill_and_resume().await?;
    // The stream breaks off, and what has come of it stands.
    let broken = streamed.read(usize::MAX).await;
    ensure!(broken.is_err() && expected.starts_with(&streamed.text), "{:?}", streamed.text);
    ensure!(text(&coordinator, &drawn(false)).await? == expected);
    Ok(())
}

#[tokio::test]
async fn beside_training_they_write_and_learn_the_same() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { workers: 2, steps: 200, ..TinyRun::default() };
    let alone = Coordinator::start(&run.toml(), &[]).await?;
    alone.start_workers(2)?;
    let learned = alone.wait_for_finish().await?;
    let weights = Weights::load(&alone.checkpoint(run.steps))?;
    drop(alone);

    let toml = format!("{}\n[serving]\nwhere = \"workers\"\nshare = 0.5\n", run.toml());
    let coordinator = Coordinator::start(&toml, &[]).await?;
    coordinator.start_workers(2)?;
    let mut written = 0;
    let mut steps = BTreeSet::new();
    while coordinator.api.run().await?.phase != Phase::Finished {
        let answer = ask(&coordinator, &json!({ "prompt": "The ", "max_tokens": 8 })).await?;
        if answer.status().is_success() {
            written += 1;
            let run = coordinator.api.run().await?;
            steps.insert(run.step);
        }
    }
    let beside = coordinator.wait_for_finish().await?;
    ensure!(written > 2 && steps.len() > 2, "{written} texts, after the steps {steps:?}");
    let loss = curves::largest_relative_difference(&beside, &learned, run.steps)?;
    let weight = Weights::load(&coordinator.checkpoint(run.steps))?.largest_difference(&weights)?;
    ensure!(loss < 1e-5 && weight < 1e-5, "losses differ by {loss}, weights by {weight}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_cannot_serve_says_what_it_lacks() -> Result<()> {
    let place = tempfile::tempdir()?;
    models::save(&place.path().join("model"), &model(false), SEED)?;
    let refused = async |toml: String| -> Result<String> {
        let file = place.path().join("run.toml");
        std::fs::write(&file, toml)?;
        let arguments = [Path::new("validate"), file.as_path()];
        let finished = cohort::run(&arguments, Duration::from_mins(1)).await?;
        ensure!(finished.code == Some(1), "it was not refused");
        Ok(finished.stderr)
    };
    let toml = serves(&place.path().join("model"), 2);
    let said = refused("mode = \"serve\"".to_owned()).await?;
    ensure!(said.contains("model.from"), "{said}");
    let said = refused(toml.clone() + "[training]\nsteps = 5\n").await?;
    ensure!(said.contains("training.steps") && said.contains("mode = \"pipeline\""), "{said}");
    let said = refused(toml + "[serving]\nwhere = \"coordinator\"\n").await?;
    ensure!(said.contains("serving.where"), "{said}");
    Ok(())
}
