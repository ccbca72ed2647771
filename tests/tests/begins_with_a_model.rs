//! A run that begins with the weights of a folder is the run that had drawn them, whoever holds which layers, and its first
//! losses are those that transformers computes.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use protocol::spec::ModelSpec;
use serde::Deserialize;
use serde_json::Value;
use tests::{
    Coordinator, alone, cohort, curves, models,
    runs::{TinyRun, file_of_this_crate},
    weights::Weights,
};

const STEPS: u64 = 6;

/// The folder of the run's model with the weights that this seed draws.
fn save(folder: &Path, run: &TinyRun, seed: u64) -> Result<()> {
    let model = ModelSpec {
        vocabulary: 256,
        positions: 32,
        width: run.width,
        heads: 4,
        layers: run.layers,
        tie_embeddings: run.tied,
    };
    models::save(folder, &model, seed)
}

/// The run's file, with shapes and weights from `folder` instead of its own.
fn begun(run: &TinyRun, folder: &Path) -> String {
    let shapes = ["layers =", "width =", "heads =", "tie_embeddings ="];
    let text = run.toml();
    let (model, rest) = text.split_once("[data]").unwrap_or((&text, ""));
    let model: Vec<&str> =
        model.lines().filter(|line| !shapes.iter().any(|shape| line.starts_with(shape))).collect();
    format!("{}\nfrom = '{}'\n\n[data]{rest}", model.join("\n"), folder.display())
}

#[tokio::test]
async fn it_learns_what_the_run_learns_that_drew_the_same_weights() -> Result<()> {
    let _alone = alone().await;
    for (workers, tied) in [(1, false), (2, false), (3, true)] {
        let run = TinyRun { workers, tied, steps: STEPS, ..TinyRun::default() };
        let coordinator = Coordinator::start(&run.toml(), &[]).await?;
        coordinator.start_workers(workers)?;
        let drawn = coordinator.wait_for_finish().await?;
        let drawn_weights = Weights::load(&coordinator.checkpoint(STEPS))?;
        drop(coordinator);

        let place = tempfile::tempdir()?;
        let folder = place.path().join("model");
        save(&folder, &run, 7)?;
        let coordinator = Coordinator::start(&begun(&run, &folder), &[]).await?;
        coordinator.start_workers(workers)?;
        let begun_with = coordinator.wait_for_finish().await?;
        // The same numbers in the same order: only which worker holds which layers may differ between two runs.
        let loss = curves::largest_relative_difference(&begun_with, &drawn, STEPS)?;
        let weight = Weights::load(&coordinator.checkpoint(STEPS))?.largest_difference(&drawn_weights)?;
        ensure!(
            loss < 1e-5 && weight < 1e-5,
            "{workers} workers: losses differ by {loss}, weights by {weight}"
        );
        drop(coordinator);

        // Other weights are another run: it was not the seed of the file that drew them.
        let other = place.path().join("other");
        save(&other, &run, 8)?;
        let coordinator = Coordinator::start(&begun(&run, &other), &[]).await?;
        coordinator.start_workers(workers)?;
        let another = coordinator.wait_for_finish().await?;
        let loss = curves::largest_relative_difference(&another, &drawn, STEPS)?;
        ensure!(loss > 1e-4, "{workers} workers: the weights in the folder do not matter");
    }
    Ok(())
}

/// What transformers makes of the first windows, by tests/reference/begun_reference.py.
#[derive(Deserialize)]
struct OfTransformers {
    set: String,
    run: Windows,
    /// As `save_pretrained` writes it.
    config: Value,
    vocabulary: Value,
    merges: String,
    training_loss: f64,
    validation_loss: f64,
}

#[derive(Deserialize)]
struct Windows {
    source: String,
    seed: u64,
    micro_batches: u32,
    sequences: u32,
    context: u32,
    validation_batches: u32,
}

/// Of the value, as the golden vectors allow it to losses in f32: the reference's own f32 is 1.8e-7 off its f64.
const LOSS: f64 = 5e-6;

#[tokio::test]
async fn its_first_losses_are_those_of_transformers() -> Result<()> {
    let _alone = alone().await;
    let golden = file_of_this_crate("golden");
    let theirs: OfTransformers = serde_json::from_slice(&fs::read(golden.join("begun.json"))?)?;
    let place = tempfile::tempdir()?;
    let folder = place.path().join("model");
    fs::create_dir(&folder)?;
    fs::write(folder.join("config.json"), theirs.config.to_string())?;
    fs::copy(golden.join(format!("{}.weights.safetensors", theirs.set)), folder.join("model.safetensors"))?;
    fs::write(folder.join("vocab.json"), theirs.vocabulary.to_string())?;
    fs::write(folder.join("merges.txt"), &theirs.merges)?;
    let Windows { source, seed, micro_batches, sequences, context, validation_batches } = theirs.run;
    for workers in [1, 2] {
        let run = TinyRun { workers, micro_batches, steps: 1, validate_every: 1, ..TinyRun::default() };
        // The model has its own tokenizer. Measured after a step that is too small to move a weight of f32, the loss on
        // the held-out text is still that of the folder's weights.
        let toml = begun(&run, &folder)
            .replace("tokenizer = \"bytes\"\n", "")
            .replace("learning_rate = 3e-3", "learning_rate = 1e-12")
            .replace("warmup_steps = 5", "warmup_steps = 0");
        for line in [
            format!("sequences = {sequences}\n"),
            format!("context = {context}\n"),
            format!("seed = {seed}\n"),
            format!("validation_batches = {validation_batches}\n"),
            format!("{source}'\n"),
            "learning_rate = 1e-12\n".into(),
        ] {
            ensure!(toml.contains(&line), "the run is not that of begun.json: no {line} in {toml}");
        }
        let coordinator = Coordinator::start(&toml, &[]).await?;
        coordinator.start_workers(workers)?;
        let curve = coordinator.wait_for_finish().await?;
        let first = curve.first().context("there is no first step")?;
        let validation = first.validation_loss.context("nothing was measured after the first step")?;
        for (what, ours, theirs) in [
            ("training", first.train_loss, theirs.training_loss),
            ("validation", validation, theirs.validation_loss),
        ] {
            let off = (ours - theirs).abs() / theirs;
            ensure!(
                off <= LOSS,
                "{workers} workers: {what} loss {ours}, in transformers {theirs}: {off} apart"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn killed_before_its_first_snapshot_it_begins_with_them_again() -> Result<()> {
    let _alone = alone().await;
    let run = TinyRun { steps: STEPS, ..TinyRun::default() };
    let place = tempfile::tempdir()?;
    let folder = place.path().join("model");
    save(&folder, &run, 7)?;
    let coordinator = Coordinator::start(&begun(&run, &folder), &[]).await?;
    let resumed = coordinator.kill_and_resume().await?;
    resumed.start_workers(1)?;
    let curve = resumed.wait_for_finish().await?;
    let first = curve.first().context("there is no first step")?.train_loss;
    ensure!((first - 256f64.ln()).abs() < 0.1, "the first loss is {first}");
    Ok(())
}

#[tokio::test]
async fn what_does_not_fit_is_named_before_anything_begins() -> Result<()> {
    let run = TinyRun { steps: STEPS, ..TinyRun::default() };
    let place = tempfile::tempdir()?;
    let folder = place.path().join("model");
    save(&folder, &run, 7)?;
    let refused = async |toml: &str| -> Result<String> {
        let file = place.path().join("run.toml");
        fs::write(&file, toml)?;
        let data = place.path().join("data");
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir"].map(Path::new);
        let arguments: Vec<&Path> = arguments.into_iter().chain([data.as_path(), file.as_path()]).collect();
        let finished = cohort::run(&arguments, Duration::from_mins(2)).await?;
        ensure!(finished.code == Some(1) && !data.join("run.toml").exists(), "it was not refused");
        Ok(finished.stderr)
    };
    let toml = begun(&run, &folder);
    let said = refused(&toml.replace("[data]", "layers = 3\n[data]")).await?;
    ensure!(said.contains("model.layers") && said.contains("4 in the model of model.from"), "{said}");
    let said = refused(&toml.replace("\"bytes\"", "\"characters\"")).await?;
    ensure!(said.contains("data.tokenizer"), "{said}");
    fs::remove_file(folder.join("model.safetensors"))?;
    let said = refused(&toml).await?;
    ensure!(said.contains("has no model.safetensors"), "{said}");
    fs::remove_file(folder.join("config.json"))?;
    let said = refused(&toml).await?;
    ensure!(said.contains("model.from") && said.contains("has no config.json"), "{said}");
    Ok(())
}
