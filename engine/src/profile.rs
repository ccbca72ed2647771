//! The self-benchmark of a worker, at the run's real shapes.

use protocol::{
    message::{Pass, PassSeconds},
    spec::{Hop, Part, RunSpec},
};

use crate::{
    device::Device,
    gpt2::{HopInput, Stage, StageError},
    init::{random, unit},
    parameters::ParameterSet,
};

/// Passes timed at most; the median of so many is steady enough.
const PASSES: usize = 9;

/// Seconds on one micro-batch of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// One layer; zeros for a model without any.
    pub layer: PassSeconds,
    /// Token and position tables.
    pub embedding: PassSeconds,
    /// Final norm, LM head and loss, both ways.
    pub head_seconds: f64,
}

/// Times one layer, the embedding and the head: the median of up to nine passes each, after one that is not
/// counted.
///
/// `now` is a clock in seconds. Each of the three stops after the pass that uses up a third of
/// `budget_seconds`; the uncounted pass, which may compile shaders, does not count there either.
///
/// # Errors
///
/// [`StageError`] when the run's model or device does not work.
pub async fn measure(
    run: &RunSpec,
    device: &Device,
    budget_seconds: f64,
    now: impl Fn() -> f64,
) -> Result<Measured, StageError> {
    let layer = Part { embedding: false, first_layer: 0, end_layer: run.model.layers.min(1), head: false };
    let embedding = Part { embedding: true, end_layer: 0, ..layer };
    // The head of a tied model needs the table beside it; its time does not depend on the tie.
    let mut untied = run.clone();
    untied.model.tie_embeddings = false;
    let head = Part { end_layer: 0, head: true, ..layer };
    let budget = budget_seconds / 3.0;
    Ok(Measured {
        layer: match run.model.layers {
            0 => PassSeconds { forward: 0.0, backward: 0.0 },
            _ => time(run, layer, device, budget, &now).await?,
        },
        embedding: time(run, embedding, device, budget, &now).await?,
        head_seconds: time(&untied, head, device, budget, &now).await?.total(),
    })
}

/// Median seconds of forward and of backward through one part; a head does both in one, counted as backward.
async fn time(
    run: &RunSpec,
    part: Part,
    device: &Device,
    budget: f64,
    now: &impl Fn() -> f64,
) -> Result<PassSeconds, StageError> {
    let hops = [Hop { index: 0, part: part.clone() }];
    let parameters = ParameterSet::cheap(&run.model, &hops, device);
    let mut stage = Stage::new(run, &hops, device, parameters)?;
    let shape = [run.sequences as usize, run.context as usize];
    let rows = shape[0] * shape[1];
    let tokens: Vec<u32> =
        (0..rows as u64).map(|i| (random(1, i) % u64::from(run.model.vocabulary)) as u32).collect();
    let hidden: Vec<f32> =
        (0..(rows * run.model.width as usize) as u64).map(|i| unit(random(2, i)) as f32 - 0.5).collect();
    let pass = Pass::Train { micro_batch: 0 };
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    let mut began = now();
    for round in 0..=PASSES {
        let start = now();
        let mut turn = start;
        if part.head {
            let input = HopInput::Hidden(hidden.clone());
            stage.loss(0, pass, input, &tokens, shape, 1.0).await?;
        } else {
            if part.embedding {
                stage.forward_tokens(0, pass, &tokens, shape).await?;
            } else {
                stage.forward_hidden(0, pass, hidden.clone(), shape).await?;
            }
            turn = now();
            stage.backward(0, 0, hidden.clone()).await?;
        }
        let end = now();
        if round == 0 {
            began = end;
        } else {
            forward.push(turn - start);
            backward.push(end - turn);
            if end - began >= budget {
                break;
            }
        }
    }
    Ok(PassSeconds { forward: median(forward), backward: median(backward) })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Seconds of each of `repeats` full training steps of the whole model, after one that is not counted: M
/// micro-batches forward and backward, the gradients' norm, clipping and AdamW.
///
/// `now` is a clock in seconds.
///
/// # Errors
///
/// [`StageError`] when the run's model or device does not work.
pub async fn bench_step(
    run: &RunSpec,
    device: &Device,
    repeats: u32,
    now: impl Fn() -> f64,
) -> Result<Vec<f64>, StageError> {
    let hops = [Hop { index: 0, part: run.model.whole() }];
    let parameters = ParameterSet::draw(&run.model, &hops, 0, device);
    let mut stage = Stage::new(run, &hops, device, parameters)?;
    let shape = [run.sequences as usize, run.context as usize];
    let count = (shape[0] * shape[1]) as u64;
    let ids = |stream: u64| -> Vec<u32> {
        (0..count).map(|i| (random(stream, i) % u64::from(run.model.vocabulary)) as u32).collect()
    };
    let micro_batches = run.micro_batches.max(1);
    let mut seconds = Vec::new();
    for step in 0..=repeats {
        let start = now();
        for micro_batch in 0..micro_batches {
            let stream = u64::from(step * micro_batches + micro_batch);
            let (tokens, targets) = (ids(2 * stream), ids(2 * stream + 1));
            let pass = Pass::Train { micro_batch };
            let scale = 1.0 / micro_batches as f32;
            stage.loss(0, pass, HopInput::Tokens(&tokens), &targets, shape, scale).await?;
        }
        let norm = libm::sqrt(stage.squared_norm().await?);
        let clip_scale = run.optimizer.clip_scale(norm);
        stage.apply(clip_scale, 1e-4).await?;
        if step > 0 {
            seconds.push(now() - start);
        }
    }
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use testkit::fixtures::run;

    /// A clock that moves by a second whenever it is read.
    fn ticking() -> impl Fn() -> f64 {
        let seconds = Cell::new(0.0);
        move || {
            seconds.set(seconds.get() + 1.0);
            seconds.get()
        }
    }

    #[test]
    fn each_part_is_timed_and_the_budget_is_kept() {
        let clock = ticking();
        let measured = futures::executor::block_on(measure(&run(), &Device::Cpu, 3.0, &clock)).unwrap();
        let both = PassSeconds { forward: 1.0, backward: 1.0 };
        assert_eq!(measured, Measured { layer: both, embedding: both, head_seconds: 1.0 });
        // Per part: one reading before, three for the uncounted pass, three for the one that fills its second; the
        // head has no turn.
        assert_eq!(clock(), 2.0 * 7.0 + 5.0 + 1.0);
    }

    #[test]
    fn a_tied_model_is_measured_too() {
        let mut run = run();
        run.model.tie_embeddings = true;
        futures::executor::block_on(measure(&run, &Device::Cpu, 3.0, ticking())).unwrap();
    }

    #[test]
    fn full_steps_are_timed_without_the_first() {
        let seconds = futures::executor::block_on(bench_step(&run(), &Device::Cpu, 3, ticking())).unwrap();
        assert_eq!(seconds, [1.0; 3]);
    }
}
