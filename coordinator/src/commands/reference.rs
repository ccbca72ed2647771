//! Autoregressive references: what a GPT-2 of the same sizes learns from the same work.
//!
//! A cross-entropy of block mode means little alone. Beside it stand two GPT-2s of the run's width, heads, vocabulary,
//! context, optimizer and rates: one of L_b layers, as deep as one block, and one of B L_b, as deep as all of them.

use anyhow::Context;
use control::learning_rate::LearningRate;
use engine::{
    Device,
    gpt2::{HopInput, Stage},
    parameters::ParameterSet,
};
use protocol::{
    message::Pass,
    spec::{Hop, RunSpec},
};

use crate::data::windows::{Batch, TrainWindows, ValidationWindows};

/// Steps of a GPT-2 of `layers` layers that run as many layers on as many batches as `local_steps` local steps, of all
/// accepted replicas together, did on blocks of `layers_per_block` layers each; at least 1.
pub(super) fn equal_steps(local_steps: u64, layers_per_block: u32, layers: u32) -> u64 {
    (local_steps * u64::from(layers_per_block) / u64::from(layers.max(1))).max(1)
}

/// Trains a GPT-2 of `layers` layers for `steps` steps of one batch [N, T] each, and gives its mean cross-entropy on
/// the first `validation_batches` held-out batches, in nats per token.
///
/// `run` gives everything else; its blocks and its own number of layers are not looked at, and the embeddings are
/// untied. `rate` is stretched to `steps`, the warm-up with it. The batches are those of `train` with one micro-batch
/// a step. `told` hears after every step how many are done.
///
/// # Errors
///
/// A model that cannot be made, or a loss that is not finite, in words.
#[allow(clippy::too_many_arguments)]
pub(super) fn train(
    run: &RunSpec,
    layers: u32,
    steps: u64,
    rate: &LearningRate,
    train: &mut TrainWindows,
    validation: &ValidationWindows,
    validation_batches: u32,
    seed: u64,
    mut told: impl FnMut(u64),
) -> anyhow::Result<f64> {
    let mut run = run.clone();
    run.model.layers = layers;
    run.model.tie_embeddings = false;
    run.blocks = None;
    let rate = stretched(rate, steps);
    let shape = [run.sequences as usize, run.context as usize];
    train.set_micro_batches(1);
    futures::executor::block_on(async {
        let device = Device::Cpu;
        let hops = [Hop { index: 0, part: run.model.whole() }];
        let parameters = ParameterSet::draw(&run.model, &hops, seed, &device);
        let mut stage = Stage::new(&run, &hops, &device, parameters)?;
        for step in 0..steps {
            let Batch { inputs, targets } = train.batch(step, 0);
            let pass = Pass::Train { micro_batch: 0 };
            let outcome = stage.loss(0, pass, HopInput::Tokens(&inputs), &targets, shape, 1.0).await;
            outcome.with_context(|| words(layers, step))?;
            let norm = libm::sqrt(stage.squared_norm().await?);
            let clip_scale = (run.optimizer.clip_norm / (norm + 1e-6)).min(1.0);
            stage.apply(clip_scale, rate.at(step)).await?;
            told(step + 1);
        }
        let batches = validation_batches.max(1);
        let mut sum = 0.0;
        for batch in 0..batches {
            let Batch { inputs, targets } = validation.batch(u64::from(batch));
            let pass = Pass::Validate { batch };
            let outcome = stage.loss(0, pass, HopInput::Tokens(&inputs), &targets, shape, 1.0).await;
            sum += f64::from(outcome.with_context(|| words(layers, steps))?.loss);
        }
        Ok(sum / f64::from(batches))
    })
}

fn words(layers: u32, step: u64) -> String {
    format!("the reference of {layers} layers failed after {step} steps; lower training.learning_rate")
}

/// The same schedule over `steps` steps.
fn stretched(rate: &LearningRate, steps: u64) -> LearningRate {
    let share = rate.warmup_steps as f64 / rate.total_steps.max(1) as f64;
    let warmup_steps = ((share * steps as f64).round() as u64).min(steps);
    LearningRate { warmup_steps, total_steps: steps, ..*rate }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::RunConfig,
        data::{Dataset, corpus::Source, tokenizer::TokenizerKind},
    };

    #[test]
    fn equal_work_is_as_many_layers_on_as_many_batches() {
        assert_eq!(equal_steps(600, 1, 1), 600);
        assert_eq!(equal_steps(600, 1, 3), 200);
        assert_eq!(equal_steps(600, 2, 6), 200);
        assert_eq!(equal_steps(1, 1, 3), 1);
    }

    #[test]
    fn the_schedule_is_stretched_with_its_warm_up() {
        let rate = LearningRate { peak: 1.0, floor: 0.1, warmup_steps: 10, total_steps: 100 };
        assert_eq!(stretched(&rate, 300), LearningRate { warmup_steps: 30, total_steps: 300, ..rate });
        assert_eq!(stretched(&rate, 1), LearningRate { warmup_steps: 0, total_steps: 1, ..rate });
    }

    #[test]
    fn it_learns_what_can_be_learnt_and_the_same_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "abcd".repeat(2000)).unwrap();
        let dataset =
            Dataset::prepare(&Source::Path(text), TokenizerKind::Bytes.into(), 0.1, folder.path(), None)
                .unwrap();
        let toml = "[model]\nwidth = 16\nheads = 2\ncontext = 16\n[training]\nsequences = 4\n";
        let config = RunConfig::parse(toml, "run.toml").unwrap();
        let run = config.run_spec(dataset.tokenizer.vocabulary());
        let rate = LearningRate { peak: 1e-2, floor: 1e-3, warmup_steps: 5, total_steps: 50 };
        let shape = config.training.window_shape();
        let go = |steps| {
            let mut windows = dataset.train_windows(1, shape, 4).unwrap();
            let validation = dataset.validation_windows(shape).unwrap();
            let mut last = 0;
            let told = |step| last = step;
            let loss = train(&run, 1, steps, &rate, &mut windows, &validation, 2, 7, told).unwrap();
            assert_eq!(last, steps);
            loss
        };
        // Bytes drawn evenly cost ln 256 = 5.5 nats each; the pattern is certain.
        assert!(go(1) > 4.0);
        let learnt = go(60);
        // A guess among the four that occur costs ln 4 = 1.4.
        assert!(learnt < 1.0, "{learnt}");
        assert_eq!(learnt, go(60));
    }
}
