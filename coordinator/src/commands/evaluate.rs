//! `cohort evaluate`: how good a run's newest checkpoint is on held-out text, with its controls.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use engine::{
    checkpoint::Checkpoint,
    denoiser::layers_per_block,
    device::Device,
    gpt2::{HopInput, Stage},
};
use protocol::{
    evaluation::Scores,
    message::Pass,
    spec::{Hop, RunSpec},
};

use super::reference;
use crate::{
    config::RunConfig,
    data::{Dataset, windows::ValidationWindows},
    runtime::block::measure_batch,
    storage::{checkpoint, data_dir::DataDir, rounds},
};

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Data directory of the run, such as cohort-data/<name of the run>.
    data_dir: PathBuf,
    /// Held-out batches.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Draws of noise whose probabilities are averaged.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    draws: u32,
    /// Train the two autoregressive references on as much layer work too: that takes about as long as the run did.
    #[arg(long)]
    references: bool,
}

pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { data_dir, batches, draws, references } = arguments;
    let options = Options { batches: *batches, draws: *draws, references: *references };
    print!("{}", evaluate(data_dir, options, |words| eprintln!("{words}"))?);
    Ok(())
}

/// What to measure, and how thoroughly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Held-out batches; at most as many as there are.
    pub batches: u32,
    /// K of the scores with several draws.
    pub draws: u32,
    /// Train the two autoregressive references too.
    pub references: bool,
}

/// An autoregressive model trained on as much layer work.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reference {
    pub layers: u32,
    pub steps: u64,
    pub cross_entropy: f64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Report {
    Pipeline { step: u64, cross_entropy: f64 },
    Blocks { step: u64, layers_per_block: u32, scores: Scores, references: Vec<Reference> },
}

/// Measures the newest checkpoint in the data directory. `told` hears what is being done.
///
/// # Errors
///
/// A folder without a run or a checkpoint, in words.
pub(super) fn evaluate(
    folder: &Path,
    options: Options,
    mut told: impl FnMut(&str),
) -> anyhow::Result<Report> {
    let (config, data_dir) = DataDir::look_into(folder)?;
    let newest = checkpoint::list(&data_dir.checkpoints())?.pop();
    let place = newest.with_context(|| {
        format!("{} has no checkpoint yet; wait for the first, or let the run go on", folder.display())
    })?;
    let step = place.file_name().and_then(|name| name.to_str()?.strip_prefix("step-")?.parse().ok());
    let step: u64 = step.context("the checkpoint's folder has no step in its name")?;
    told(&format!("measuring {}", place.display()));
    let data = Dataset::of_folder(&config.data, &data_dir)?;
    let run = config.run_spec(data.tokenizer.vocabulary());
    let validation = data.validation_windows(config.training.window_shape())?;
    let batches = u64::from(options.batches).min(validation.batches()) as u32;
    let weights = fs::read(place.join("model.safetensors"))?;
    let Some(blocks) = run.blocks else {
        let config = fs::read_to_string(place.join("config.json"))?;
        let cross_entropy = of_pipeline(&run, Checkpoint { config, weights }, &validation, batches)?;
        return Ok(Report::Pipeline { step, cross_entropy });
    };
    let all = (0..batches)
        .map(|batch| {
            measure_batch(&run, &[&weights], &validation, batch, config.training.seed, options.draws)
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(anyhow::Error::msg)?;
    let scores = Scores::mean(&all).context("there is no held-out batch to measure on")?;
    let layers_per_block =
        layers_per_block(&run.model, &blocks).context("the blocks do not fit the layers")?;
    let references = match options.references {
        true => references(&config, &run, &data, &validation, batches, &data_dir, &mut told)?,
        false => vec![],
    };
    Ok(Report::Blocks { step, layers_per_block, scores, references })
}

/// Mean cross-entropy of a GPT-2.
fn of_pipeline(
    run: &RunSpec,
    checkpoint: Checkpoint,
    validation: &ValidationWindows,
    batches: u32,
) -> anyhow::Result<f64> {
    let (model, parameters) = checkpoint.load(&Device::Cpu)?;
    let hops = [Hop { index: 0, part: model.whole() }];
    let mut stage = Stage::for_inference(&model, &hops, &Device::Cpu, parameters)?;
    let shape = [run.sequences as usize, run.context as usize];
    let mut total = 0.0;
    for batch in 0..batches {
        let windows = validation.batch(u64::from(batch));
        let pass = Pass::Validate { batch };
        let input = HopInput::Tokens(&windows.inputs);
        let loss =
            futures::executor::block_on(stage.loss(0, pass, input, &windows.targets, shape, 1.0))?.loss;
        total += f64::from(loss);
    }
    ensure!(batches > 0, "there is no held-out batch to measure on");
    Ok(total / f64::from(batches))
}

/// The references: accepted local steps times L_b layers, spent on one model of L_b layers and on one of all.
fn references(
    config: &RunConfig,
    run: &RunSpec,
    data: &Dataset,
    validation: &ValidationWindows,
    batches: u32,
    data_dir: &DataDir,
    told: &mut impl FnMut(&str),
) -> anyhow::Result<Vec<Reference>> {
    let manifest = rounds::list(&data_dir.snapshots())?.pop().context("the run has no round yet")?;
    let local_steps = manifest.totals.accepted * u64::from(config.rounds.local_steps);
    ensure!(local_steps > 0, "no work has been accepted yet; there is nothing to compare with");
    let each = run.model.layers / run.blocks.map_or(1, |blocks| blocks.count);
    let training = &config.training;
    let rate = super::serve::settings::learning_rate(training);
    let mut train = data.train_windows(training.seed, training.window_shape(), 1)?;
    let mut found = Vec::new();
    for layers in [each, run.model.layers] {
        let steps = reference::equal_steps(local_steps, each, layers);
        let tenth = (steps / 10).max(1);
        let heard = |done: u64| {
            if done.is_multiple_of(tenth) {
                told(&format!("training the reference of {layers} layers: step {done} of {steps}"));
            }
        };
        let seed = training.seed;
        let cross_entropy =
            reference::train(run, layers, steps, &rate, &mut train, validation, batches, seed, heard)?;
        found.push(Reference { layers, steps, cross_entropy });
        if each == run.model.layers {
            break; // one block: both are the same
        }
    }
    Ok(found)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (step, layers_per_block, scores, references) = match self {
            Report::Pipeline { step, cross_entropy } => {
                return writeln!(f, "step {step}: cross-entropy {cross_entropy:.4} nats per token");
            }
            Report::Blocks { step, layers_per_block, scores, references } => {
                (step, layers_per_block, scores, references)
            }
        };
        writeln!(
            f,
            "Cross-entropy in nats per token on held-out text, after {step} local steps of each block.\n"
        )?;
        let mut line = |name: String, value: f64, words: &str| writeln!(f, "{name:<34}{value:>8.4}  {words}");
        line("from noise, one draw".into(), scores.one_draw, "the headline: one sweep through all blocks")?;
        let draws = scores.draws;
        line(
            format!("from noise, {draws} draws averaged"),
            scores.many_draws,
            "how much of it is the draw's luck",
        )?;
        line("from zeros".into(), scores.from_zero, "one sweep that starts without noise")?;
        for (step, value) in (1..).zip(&scores.chain) {
            line(
                format!("after step {step} of the sweep"),
                *value,
                "whether the chain gains from step to step",
            )?;
        }
        for (block, value) in (1..).zip(&scores.alone) {
            line(format!("block {block} alone, from noise"), *value, "what the chain has to beat")?;
        }
        for (block, value) in (1..).zip(&scores.local) {
            line(format!("block {block}, local"), *value, "LEAKY: the answer shines through the noise")?;
        }
        for (block, value) in (1..).zip(&scores.scrambled) {
            line(format!("block {block}, local, false context"), *value, "what the leak alone gives")?;
        }
        for Reference { layers, steps, cross_entropy } in references {
            let words =
                if layers == layers_per_block { "as deep as a block" } else { "as deep as all blocks" };
            let words = format!("a GPT-2 {words}, {steps} steps: the same layer work");
            line(format!("autoregressive, {layers} layers"), *cross_entropy, &words)?;
        }
        if references.is_empty() {
            writeln!(f, "\nWithout the autoregressive references; --references trains them.")?;
        }
        Ok(())
    }
}
