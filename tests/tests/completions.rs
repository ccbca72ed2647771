//! Texts that the coordinator writes from the newest snapshot: asked for as other programs do, by too many, and across a
//! restart.

use std::{env, path::PathBuf};

use anyhow::{Context, Result, ensure};
use protocol::serving::{Samples, ServingView};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tests::{
    Coordinator, LIMIT, alone, cohort,
    runs::{TinyBlocks, TinyRun},
    wait_until,
};
use tokio::process::Command;

/// A tiny run that writes texts.
fn run(serving: &str) -> String {
    let run = TinyRun { steps: 20, snapshot_every: 10, ..TinyRun::default() };
    format!("{}\n[serving]\nwhere = \"coordinator\"\n{serving}\n", run.toml())
}

/// The same, trained, with its last weights in use.
async fn trained(serving: &str) -> Result<Coordinator> {
    let coordinator = Coordinator::start(&run(serving), &[]).await?;
    coordinator.start_worker("trains")?;
    coordinator.wait_for_finish().await?;
    wait_for_model(&coordinator, 20).await?;
    Ok(coordinator)
}

async fn wait_for_model(coordinator: &Coordinator, step: u64) -> Result<()> {
    wait_until("the newest weights", LIMIT, async || {
        let view: ServingView = get(coordinator, "/v1/serving").await?;
        Ok(view.model.is_some_and(|model| model.step == step).then_some(()))
    })
    .await
}

async fn get<T: serde::de::DeserializeOwned>(coordinator: &Coordinator, path: &str) -> Result<T> {
    let (status, text) = coordinator.api.text(path).await?;
    ensure!(status == 200, "{path}: {status}: {text}");
    Ok(serde_json::from_str(&text)?)
}

async fn ask(coordinator: &Coordinator, body: &Value) -> Result<Response> {
    Ok(Client::new().post(format!("{}/v1/completions", coordinator.url)).json(body).send().await?)
}

/// The text of the answer.
async fn text(coordinator: &Coordinator, body: &Value) -> Result<String> {
    let answer: Value = ask(coordinator, body).await?.error_for_status()?.json().await?;
    Ok(answer["choices"][0]["text"].as_str().context("no text")?.to_owned())
}

/// Status and words of a refusal.
async fn refusal(response: Response) -> Result<(StatusCode, String)> {
    let status = response.status();
    let body: Value = response.json().await?;
    Ok((status, body["error"]["message"].as_str().context("no words")?.to_owned()))
}

#[tokio::test]
async fn openais_own_client_is_answered() -> Result<()> {
    let _alone = alone().await;
    let python = env::var_os("PYTHON_WITH_OPENAI").context(
        "set PYTHON_WITH_OPENAI to a Python that has the package openai; `cargo xtask test` installs one",
    )?;
    let coordinator = trained("").await?;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/openai_client.py");
    let output = Command::new(python).arg(script).args([coordinator.url.as_str(), "tiny"]).output().await?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(said.trim() == "ok", "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test]
async fn before_the_first_snapshot_the_answer_is_in_words() -> Result<()> {
    let coordinator = Coordinator::start(&run(""), &[]).await?;
    let response = ask(&coordinator, &json!({ "prompt": "The " })).await?;
    ensure!(response.headers().contains_key("retry-after"));
    let (status, words) = refusal(response).await?;
    ensure!(status == StatusCode::SERVICE_UNAVAILABLE && words.contains("no snapshot yet"), "{words}");

    let silent = Coordinator::start("", &[]).await?;
    let (status, words) = refusal(ask(&silent, &json!({ "prompt": "The " })).await?).await?;
    ensure!(status == StatusCode::SERVICE_UNAVAILABLE && words.contains("[serving]"), "{words}");
    Ok(())
}

/// One text is written, one waits: who comes then is told when to come back, and has room once somebody goes away.
#[tokio::test]
async fn too_many_are_refused_until_somebody_goes_away() -> Result<()> {
    let _alone = alone().await;
    let coordinator = trained("at_once = 1\nwaiting = 1\nmost_tokens = 16384").await?;
    let long = json!({ "prompt": "The ", "max_tokens": 16384, "stream": true });
    let mut first = ask(&coordinator, &long).await?.error_for_status()?;
    // Its first token has come.
    let mut heard = String::new();
    while !heard.contains("data: ") {
        heard += &String::from_utf8_lossy(&first.chunk().await?.context("the text ends")?);
    }
    ensure!(heard.contains(": place 0"), "{heard}");
    let mut second = ask(&coordinator, &long).await?.error_for_status()?;
    let place = second.chunk().await?.context("nothing is told")?;
    ensure!(place.starts_with(b": place 1"), "{place:?}");

    let short = json!({ "prompt": "The ", "max_tokens": 1 });
    let third = ask(&coordinator, &short).await?;
    let after = third.headers().get("retry-after").context("no time to come back")?.to_str()?.to_owned();
    ensure!(after.parse::<u64>()? >= 1, "{after}");
    let (status, words) = refusal(third).await?;
    ensure!(status == StatusCode::TOO_MANY_REQUESTS, "{status}: {words}");

    drop((first, second));
    wait_until("room", LIMIT, async || {
        let response = ask(&coordinator, &short).await?;
        Ok(response.status().is_success().then_some(()))
    })
    .await
}

#[tokio::test]
async fn the_organizer_decides_who_may_ask_and_whether() -> Result<()> {
    let _alone = alone().await;
    let coordinator = trained("open = false").await?;
    let body = json!({ "prompt": "The ", "max_tokens": 2 });
    let (status, _) = refusal(ask(&coordinator, &body).await?).await?;
    ensure!(status == StatusCode::UNAUTHORIZED, "{status}");
    let token = coordinator.organizer.split_once("#token=").context("no token")?.1;
    let url = format!("{}/v1/completions", coordinator.url);
    let asked = async || {
        Ok::<_, anyhow::Error>(Client::new().post(&url).bearer_auth(token).json(&body).send().await?)
    };
    ensure!(asked().await?.status() == StatusCode::OK);

    let switch = async |to: &str| {
        let post = Client::new().post(format!("{}/v1/serving/{to}", coordinator.url));
        Ok::<_, anyhow::Error>(post.bearer_auth(token).send().await?.status())
    };
    let unasked = Client::new().post(format!("{}/v1/serving/off", coordinator.url)).send().await?;
    ensure!(unasked.status() == StatusCode::UNAUTHORIZED, "anybody may switch it off");
    ensure!(switch("off").await? == StatusCode::NO_CONTENT);
    let (status, words) = refusal(asked().await?).await?;
    ensure!(status == StatusCode::SERVICE_UNAVAILABLE && words.contains("switched this off"), "{words}");
    ensure!(switch("on").await? == StatusCode::NO_CONTENT);
    ensure!(asked().await?.status() == StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn a_restart_changes_no_text_and_forgets_no_sample() -> Result<()> {
    let _alone = alone().await;
    let coordinator = trained("").await?;
    let greedy = json!({ "prompt": "The ", "max_tokens": 40, "temperature": 0 });
    let before = text(&coordinator, &greedy).await?;
    let samples = wait_until("what it wrote at its ages", LIMIT, async || {
        let samples: Samples = get(&coordinator, "/v1/samples").await?;
        Ok(samples.samples.last().is_some_and(|last| last.step == 20).then_some(samples))
    })
    .await?;

    // The command writes the same.
    let folder = coordinator.data();
    let folder = folder.to_str().context("the folder's name is not UTF-8")?;
    let command = ["generate", folder, "--prompt", "The ", "--tokens", "40", "--temperature", "0"];
    let written = cohort::run(&command, LIMIT).await?;
    ensure!(
        written.stdout.trim_end_matches('\n') == format!("The {before}").trim_end_matches('\n'),
        "{written:?}",
        written = written.stdout
    );

    let coordinator = coordinator.kill_and_resume().await?;
    wait_for_model(&coordinator, 20).await?;
    ensure!(text(&coordinator, &greedy).await? == before);
    ensure!(get::<Samples>(&coordinator, "/v1/samples").await? == samples);
    Ok(())
}

#[tokio::test]
async fn an_address_that_asks_too_often_waits() -> Result<()> {
    let _alone = alone().await;
    let coordinator = trained("texts_per_minute = 2").await?;
    // Of this computer's usual address nothing is counted.
    let other = Client::builder().local_address(std::net::IpAddr::from([127, 0, 0, 7])).build()?;
    let url = format!("{}/v1/completions", coordinator.url);
    let asked = async |n: u32| {
        let body = json!({ "prompt": "The ", "max_tokens": 1, "n": n });
        Ok::<_, anyhow::Error>(other.post(&url).json(&body).send().await?)
    };
    let (status, words) = refusal(asked(3).await?).await?;
    ensure!(status == StatusCode::BAD_REQUEST && words.contains("in a minute"), "{status}: {words}");
    ensure!(asked(2).await?.status() == StatusCode::OK);
    let refused = asked(1).await?;
    let after = refused.headers().get("retry-after").context("no time to come back")?.to_str()?.to_owned();
    ensure!((1..=60).contains(&after.parse::<u64>()?), "{after}");
    let (status, words) = refusal(refused).await?;
    ensure!(status == StatusCode::TOO_MANY_REQUESTS, "{status}: {words}");
    ensure!(text(&coordinator, &json!({ "prompt": "The ", "max_tokens": 1 })).await?.chars().count() <= 1);
    Ok(())
}

#[tokio::test]
async fn a_run_in_block_mode_writes_by_sweeps_of_one_or_several_tokens() -> Result<()> {
    let _alone = alone().await;
    let blocks = TinyBlocks { steps: 20, local_steps: 10, ..TinyBlocks::default() };
    let toml = format!("{}\n[serving]\nwhere = \"coordinator\"\n", blocks.toml());
    let coordinator = Coordinator::start(&toml, &[]).await?;
    coordinator.start_workers(blocks.blocks as usize)?;
    coordinator.wait_for_finish().await?;
    wait_for_model(&coordinator, 20).await?;
    let view: ServingView = get(&coordinator, "/v1/serving").await?;
    let sweep = view.model.and_then(|model| model.sweep).context("it does not say what a sweep writes")?;

    let body = |chunk: u32| json!({ "prompt": "The ", "max_tokens": 12, "seed": 5, "chunk": chunk });
    let singly = text(&coordinator, &body(1)).await?;
    ensure!(text(&coordinator, &body(1)).await? == singly, "the same seed, another text");
    ensure!(!text(&coordinator, &body(4)).await?.is_empty());
    let (status, words) = refusal(ask(&coordinator, &body(sweep + 1)).await?).await?;
    ensure!(status == StatusCode::BAD_REQUEST && words.contains("`chunk`"), "{words}");

    // The command writes the same.
    let folder = coordinator.data();
    let folder = folder.to_str().context("the folder's name is not UTF-8")?;
    let command =
        ["generate", folder, "--prompt", "The ", "--tokens", "12", "--temperature", "1", "--seed", "5"];
    let written = cohort::run(&command, LIMIT).await?;
    let continued = written.stdout.strip_prefix("The ").with_context(|| written.stderr.clone())?;
    ensure!(continued.starts_with(singly.trim_end()), "{continued:?} is not {singly:?}");
    Ok(())
}
