//! Block mode with real processes: it learns, survives kill -9, and its work can be done again.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use protocol::view::{RoundsView, RunView};
use tests::{Coordinator, alone, cohort, runs::TinyBlocks};

const LIMIT: Duration = Duration::from_mins(5);

fn rounds(run: &RunView) -> Result<&RoundsView> {
    run.rounds.as_ref().context("the run is not in block mode")
}

/// Rounds done.
fn done(run: &RunView) -> u64 {
    run.rounds.as_ref().map_or(0, |rounds| rounds.round)
}

#[tokio::test]
async fn three_workers_learn_blocks_apart_and_their_work_can_be_done_again() -> Result<()> {
    let _alone = alone().await;
    let run = TinyBlocks {
        steps: 150,
        validate_every: 50,
        rounds: "moments = \"fresh\"\nevaluate_by = \"workers\"\n",
        ..TinyBlocks::default()
    };
    let coordinator = Coordinator::start(&run.toml(), &[]).await?;
    coordinator.start_workers(4)?;
    let curve = coordinator.wait_for_finish().await?;
    let run = coordinator.api.run().await?;
    let view = rounds(&run)?;
    ensure!(view.round == 30 && view.rounds == 30, "{view:?}");
    ensure!(view.blocks.iter().all(|block| block.updates >= 25), "every block is trained: {view:?}");
    ensure!(view.mean_participation.is_some_and(|share| share > 0.8), "{view:?}");
    let per_delta = |bytes: u64| bytes / view.accepted.max(1);
    ensure!(
        per_delta(view.bytes_up) > 10_000 && per_delta(view.bytes_down) > 10_000,
        "bytes are counted: {view:?}"
    );

    let measured: Vec<f64> = curve.iter().filter_map(|point| point.validation_loss).collect();
    let (first, last) = (measured.first().context("nothing measured")?, measured.last().context("nothing")?);
    ensure!(*last < 256f64.ln() - 1.5 && last <= first, "from noise it comes from {first} to {last}");
    let (of, scores) = view.evaluation.as_ref().context("the last weights are not measured")?;
    ensure!(*of == 30 && scores.chain.len() == 3 && scores.alone.len() == 3, "{scores:?}");
    // A leak is a leak: with a false context the local score falls apart, the one from noise never saw the answer.
    ensure!(scores.local[2] < scores.scrambled[2], "{scores:?}");

    let data = coordinator.data().display().to_string();
    let evaluated =
        cohort::run(&["evaluate", &data, "--batches", "2", "--draws", "2", "--references"], LIMIT).await?;
    ensure!(evaluated.code == Some(0), "{}", evaluated.stderr);
    for words in [
        "from noise, one draw",
        "from noise, 2 draws averaged",
        "from zeros",
        "after step 3 of the sweep",
        "block 3 alone, from noise",
        "LEAKY",
        "false context",
        "autoregressive, 1 layer",
        "autoregressive, 3 layers",
    ] {
        ensure!(evaluated.stdout.contains(words), "`{words}` is not in {}", evaluated.stdout);
    }
    is_exported(&data).await?;
    let rechecked = cohort::run(&["recheck", &data], LIMIT).await?;
    ensure!(rechecked.code == Some(0), "{}{}", rechecked.stdout, rechecked.stderr);
    ensure!(
        rechecked.stdout.lines().count() >= 6,
        "two rounds are kept to be done again: {}",
        rechecked.stdout
    );
    ensure!(rechecked.stdout.lines().all(|line| line.contains("as sent")), "{}", rechecked.stdout);
    Ok(())
}

/// The run's model says the same in the folder that `cohort export` makes, which is made once and in one form.
async fn is_exported(data: &str) -> Result<()> {
    let place = tempfile::tempdir()?;
    let out = place.path().join("out").display().to_string();
    let export = async |folder: &str, format: &str| {
        cohort::run(&["export", folder, "--format", format, "--out", &out], LIMIT).await
    };
    let empty = place.path().display().to_string();
    for (folder, format, words) in [
        (data, "gguf", "GGUF has no architecture that describes it"),
        (empty.as_str(), "safetensors", "has no config.json; give the folder of a checkpoint"),
    ] {
        let refused = export(folder, format).await?;
        ensure!(refused.code == Some(1) && refused.stderr.contains(words), "{}", refused.stderr);
        ensure!(!Path::new(&out).exists(), "{folder} as {format} left something");
    }
    let exported = export(data, "safetensors").await?;
    ensure!(exported.code == Some(0), "{}", exported.stderr);
    let again = export(data, "safetensors").await?;
    ensure!(again.code == Some(1) && again.stderr.contains("is there already"), "{}", again.stderr);
    let mut said = Vec::new();
    for folder in [data, &out] {
        for words in [&["--score"][..], &["--tokens", "20"]] {
            let generate = ["generate", folder, "--prompt", "The first of them was"];
            let finished = cohort::run(&[&generate, words].concat(), LIMIT).await?;
            ensure!(finished.code == Some(0), "{}", finished.stderr);
            said.push(finished.stdout);
        }
    }
    ensure!(said[..2] == said[2..], "the exported model is another: {said:?}");
    Ok(())
}

#[tokio::test]
async fn work_that_began_with_moments_is_done_again_from_where_they_come() -> Result<()> {
    let _alone = alone().await;
    // All six rounds are kept: each round's moments can be had again from those before it.
    let run =
        TinyBlocks { steps: 30, rounds: "longest_seconds = 600\ndelta = \"f16\"\n", ..TinyBlocks::default() };
    let text = run.toml().replace("[snapshots]\n", "[snapshots]\nkeep = 10\n");
    let coordinator = Coordinator::start(&text, &[]).await?;
    coordinator.start_workers(3)?;
    coordinator.wait_for_finish().await?;
    let data = coordinator.data().display().to_string();
    let rechecked = cohort::run(&["recheck", &data], LIMIT).await?;
    ensure!(rechecked.code == Some(0), "{}{}", rechecked.stdout, rechecked.stderr);
    let again = rechecked.stdout.lines().filter(|line| line.contains("as sent")).count();
    ensure!(again >= 15, "of 18 pieces of work {again} could be done again: {}", rechecked.stdout);
    ensure!(rechecked.stdout.contains("round 5, block"), "the last round too: {}", rechecked.stdout);
    Ok(())
}

#[tokio::test]
async fn a_coordinator_killed_between_rounds_goes_on_from_the_published_weights() -> Result<()> {
    let _alone = alone().await;
    let run = TinyBlocks {
        steps: 400,
        lease_seconds: 6.0,
        // Momentum is part of the state.
        rounds: "outer = \"nesterov\"\nouter_learning_rate = 0.5\nouter_momentum = 0.5\nlongest_seconds = 60\n",
        ..TinyBlocks::default()
    };
    let mut coordinator = Coordinator::start(&run.toml(), &[]).await?;
    coordinator.start_workers(3)?;
    for round in [3, 20] {
        coordinator.wait_for_run("some rounds", |run| done(run) >= round).await?;
        let before = coordinator.api.run().await?;
        coordinator = coordinator.kill_and_resume().await?;
        let after = coordinator.api.run().await?;
        let (was, is) = (rounds(&before)?, rounds(&after)?);
        ensure!(is.round >= was.round, "back from round {} to {}", was.round, is.round);
        // Of the round in progress nothing is published yet: its deltas are made again.
        let unpublished: u64 = was.blocks.iter().map(|block| u64::from(block.arrived)).sum();
        ensure!(is.accepted + unpublished >= was.accepted, "the ledger's sums go on: {was:?}, {is:?}");
        if is.round == was.round {
            ensure!(after.snapshot_state == before.snapshot_state, "to the very state");
        }
    }
    // A worker is killed too: the blocks that are left go on, and its own when another comes.
    coordinator.wait_for_run("rounds of all again", |run| run.workers.len() == 3 && done(run) > 25).await?;
    coordinator.kill_worker("native-2").await?;
    let before = done(&coordinator.api.run().await?);
    coordinator
        .wait_for_run("rounds without it", |run| run.workers.len() == 2 && done(run) > before + 2)
        .await?;
    coordinator.start_worker("late")?;
    let has_a_block = |run: &RunView| {
        run.workers.iter().any(|w| w.name == "late" && w.replica.is_some_and(|replica| replica.accepted > 0))
    };
    coordinator.wait_for_run("the new one's work to be accepted", has_a_block).await?;
    let curve = coordinator.wait_for_finish().await?;
    ensure!(curve.last().is_some_and(|point| point.step == 400), "the run comes to its end");
    Ok(())
}

#[tokio::test]
async fn what_a_block_run_cannot_be_is_said_in_words() -> Result<()> {
    let _alone = alone().await;
    let run = TinyBlocks::default().toml();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("run.toml");
    let refused = async |text: String, arguments: &[&str], words: &str| -> Result<()> {
        std::fs::write(&path, text)?;
        let (file, data) = (path.display().to_string(), folder.path().join("data").display().to_string());
        let serve = ["serve", &file, "--listen", "127.0.0.1:0", "--data-dir", &data];
        let finished = cohort::run(&[&serve, arguments].concat(), LIMIT).await?;
        ensure!(finished.code.is_some_and(|code| code != 0), "it was taken");
        ensure!(finished.stderr.contains(words), "`{words}` is not in {}", finished.stderr);
        Ok(())
    };
    refused(run.replace("count = 3", "count = 2"), &[], "make model.layers a multiple of blocks.count")
        .await?;
    refused(run.replace("[blocks]\n", "[blocks]\nsigma_min = 10\n"), &[], "blocks.sigma_min smaller").await?;
    refused(run.clone(), &["--start-with", "2"], "cannot place 3 blocks").await?;
    let nothing = cohort::run(&["evaluate", &folder.path().display().to_string()], LIMIT).await?;
    ensure!(nothing.stderr.contains("holds no run"), "{}", nothing.stderr);
    Ok(())
}
