//! GPT-2, undivided and as a pipeline: the sets `gpt2-*`.

use std::collections::BTreeMap;

use engine::{
    device::Device,
    gpt2::{StageError, shapes},
    parameters::Quantity,
};
use protocol::{
    message::Pass,
    spec::{ModelSpec, RunSpec},
};
use serde::Deserialize;

use super::{
    GoldenError, Report, Scope, Source, Tolerances,
    adamw::Rule,
    compare::{Checksum, checksum, key_bias, relative},
    files::{self, Tensors},
    pipeline::Pipeline,
    splits::{self, Workers},
};
use crate::fixtures;

#[derive(Deserialize)]
struct Config {
    n_layer: u32,
    d: u32,
    heads: u32,
    n_positions: u32,
    #[serde(rename = "T")]
    tokens: usize,
    vocab: u32,
    tied: bool,
    batch: usize,
}

#[derive(Deserialize)]
struct Training {
    #[serde(flatten)]
    rule: Rule,
    micro_batches: usize,
}

#[derive(Deserialize)]
struct Step {
    loss: f64,
    micro_losses: Vec<f64>,
    grad_norm: f64,
    clip_factor: f64,
    params: BTreeMap<String, Checksum>,
    adam_m_l2: BTreeMap<String, f64>,
    adam_v_l2: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Numbers {
    config: Config,
    loss: f64,
    adamw: Training,
    steps: Vec<Step>,
    loss_on_first_batch_after_all_steps: f64,
}

/// One set, loaded.
struct Set<'a> {
    numbers: Numbers,
    weights: Vec<u8>,
    forward: Tensors,
    train: Tensors,
    tolerances: &'a Tolerances,
    model: ModelSpec,
}

impl Config {
    fn model(&self) -> ModelSpec {
        ModelSpec {
            vocabulary: self.vocab,
            positions: self.n_positions,
            width: self.d,
            heads: self.heads,
            layers: self.n_layer,
            tie_embeddings: self.tied,
        }
    }
}

/// The model of a set.
pub(super) fn model(name: &str, source: Source<'_>) -> Result<ModelSpec, GoldenError> {
    let numbers: Numbers = files::json(source, &format!("{name}.json"))?;
    Ok(numbers.config.model())
}

pub(super) async fn check(
    name: &str,
    source: Source<'_>,
    device: &Device,
    tolerances: &Tolerances,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), GoldenError> {
    let numbers: Numbers = files::json(source, &format!("{name}.json"))?;
    let model = numbers.config.model();
    let set = Set {
        weights: files::bytes(source, &format!("{name}.weights.safetensors"))?,
        forward: Tensors::open(source, &format!("{name}.forward.safetensors"))?,
        train: Tensors::open(source, &format!("{name}.train.safetensors"))?,
        numbers,
        tolerances,
        model,
    };
    for workers in splits::all(&set.model, scope) {
        for &recompute in &scope.recompute {
            let again = if recompute { ", recomputing" } else { "" };
            let place = format!("{name} {}{again}", splits::describe(&workers));
            let mut pipeline = Pipeline::new(&set.run(recompute), &workers, &set.weights, device)?;
            set.whole_batch(&mut pipeline, &workers, &place, report).await?;
            let mut pipeline = Pipeline::new(&set.run(recompute), &workers, &set.weights, device)?;
            set.training(&mut pipeline, &place, report).await?;
        }
    }
    Ok(())
}

impl Set<'_> {
    fn run(&self, recompute: bool) -> RunSpec {
        let config = &self.numbers.config;
        RunSpec {
            name: "golden".into(),
            model: self.model.clone(),
            optimizer: self.numbers.adamw.rule.spec(),
            sequences: (config.batch / self.numbers.adamw.micro_batches) as u32,
            context: config.tokens as u32,
            micro_batches: self.numbers.adamw.micro_batches as u32,
            recompute,
            ..fixtures::run()
        }
    }

    /// The forward batch as one micro-batch: hidden states, logits, loss and all gradients.
    async fn whole_batch(
        &self,
        pipeline: &mut Pipeline,
        workers: &Workers,
        place: &str,
        report: &mut Report,
    ) -> Result<(), GoldenError> {
        let failed = |error: StageError| GoldenError::Stage { place: place.into(), error };
        let config = &self.numbers.config;
        let shape = [config.batch, config.tokens];
        let (tokens, targets) = (self.forward.ids("input_ids")?, self.forward.ids("target_ids")?);

        let validate = Pass::Validate { batch: 0 };
        let left = pipeline.forward(validate, tokens, shape).await.map_err(failed)?;
        for (hop, hidden) in left.iter().enumerate() {
            let name = format!("hidden.{}", pipeline.layers_before_exit(hop));
            let golden = self.forward.floats(&name)?;
            relative(report, "hidden states", hidden, golden, self.tolerances.activation, || {
                format!("{place}, {name}")
            });
        }
        let logits = pipeline.logits(tokens, &left, shape).await.map_err(failed)?;
        relative(
            report,
            "logits",
            &logits,
            self.forward.floats("logits")?,
            self.tolerances.activation,
            || place.into(),
        );
        let validated = pipeline.loss(validate, tokens, &left, targets, shape, 1.0).await.map_err(failed)?;
        self.loss(report, f64::from(validated.loss), self.numbers.loss, || format!("{place}, validation"));

        let train = Pass::Train { micro_batch: 0 };
        let left = pipeline.forward(train, tokens, shape).await.map_err(failed)?;
        let outcome = pipeline.loss(train, tokens, &left, targets, shape, 1.0).await.map_err(failed)?;
        self.loss(report, f64::from(outcome.loss), self.numbers.loss, || format!("{place}, training"));
        let in_two_hops = self.model.tie_embeddings && workers[0].len() == 2;
        let from_head = match in_two_hops {
            true => Some(pipeline.read(shapes::TOKEN_TABLE, Quantity::Gradient).await?),
            false => None,
        };
        let gradients = pipeline.backward(0, outcome.input_gradient).await.map_err(failed)?;
        for (hop, gradient) in gradients.iter().enumerate() {
            let name = format!("grad.hidden.{}", pipeline.layers_before_exit(hop));
            let golden = self.forward.floats(&name)?;
            relative(
                report,
                "gradients of hidden states",
                gradient,
                golden,
                self.tolerances.gradient,
                || format!("{place}, {name}"),
            );
        }
        self.gradients(pipeline, place, report).await?;
        if let Some(from_head) = from_head {
            self.tied_parts(pipeline, &from_head, place, report).await?;
        }
        Ok(())
    }

    async fn gradients(
        &self,
        pipeline: &Pipeline,
        place: &str,
        report: &mut Report,
    ) -> Result<(), GoldenError> {
        for name in pipeline.names() {
            let found = pipeline.read(&name, Quantity::Gradient).await?;
            let golden = self.train.floats(&format!("grad.{name}"))?;
            let keys = key_bias(&name, golden.len());
            let highest = golden.iter().fold(0.0f64, |max, g| max.max(f64::from(g.abs())));
            for (index, (found, golden)) in found.iter().zip(golden).enumerate() {
                let difference = f64::from(found - golden).abs();
                let at = || format!("{place}, `{name}`[{index}]");
                if keys.contains(&index) {
                    report.note("gradient of the key bias", difference, self.tolerances.key_bias, at);
                } else {
                    report.note(
                        "gradients of parameters",
                        difference,
                        self.tolerances.gradient * highest,
                        at,
                    );
                }
            }
        }
        Ok(())
    }

    /// The tied table's gradient, by the hop it comes from.
    async fn tied_parts(
        &self,
        pipeline: &Pipeline,
        from_head: &[f32],
        place: &str,
        report: &mut Report,
    ) -> Result<(), GoldenError> {
        let sum = pipeline.read(shapes::TOKEN_TABLE, Quantity::Gradient).await?;
        let from_embedding: Vec<f32> = sum.iter().zip(from_head).map(|(sum, head)| sum - head).collect();
        for (part, found) in [("embedding", &from_embedding[..]), ("lm_head", from_head)] {
            let golden = self.train.floats(&format!("tied_part.{part}.{}", shapes::TOKEN_TABLE))?;
            relative(report, "parts of the tied gradient", found, golden, self.tolerances.gradient, || {
                format!("{place}, {part}")
            });
        }
        Ok(())
    }

    /// All optimizer steps, with every micro-batch in flight at once.
    async fn training(
        &self,
        pipeline: &mut Pipeline,
        place: &str,
        report: &mut Report,
    ) -> Result<(), GoldenError> {
        let failed = |error: StageError| GoldenError::Stage { place: place.into(), error };
        let config = &self.numbers.config;
        let (ids, targets) = (self.train.ids("step_input_ids")?, self.train.ids("step_target_ids")?);
        let batch = config.batch * config.tokens;
        for (number, golden) in self.numbers.steps.iter().enumerate() {
            let place = format!("{place}, step {number}");
            let range = number * batch..(number + 1) * batch;
            let losses =
                self.step(pipeline, &ids[range.clone()], &targets[range], number, &place, report).await?;
            for (found, golden) in losses.iter().zip(&golden.micro_losses) {
                self.loss(report, *found, *golden, || format!("{place}, a micro-batch"));
            }
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            self.loss(report, mean, golden.loss, || place.clone());
            let norm = pipeline.norm().await.map_err(failed)?;
            report.note(
                "norm of the gradients",
                (norm - golden.grad_norm).abs(),
                self.tolerances.norm * golden.grad_norm,
                || place.clone(),
            );
            let scale = self.numbers.adamw.rule.spec().clip_scale(norm);
            report.note(
                "clip factor",
                (scale - golden.clip_factor).abs(),
                self.tolerances.norm * golden.clip_factor,
                || place.clone(),
            );
            pipeline.apply(scale, self.numbers.adamw.rule.lr).await.map_err(failed)?;
            if number == 0 {
                self.updated(pipeline, golden.clip_factor, &place, report).await?;
            }
            self.checksums(pipeline, golden, &place, report).await?;
        }
        let (tokens, targets) = (self.forward.ids("input_ids")?, self.forward.ids("target_ids")?);
        let shape = [config.batch, config.tokens];
        let validate = Pass::Validate { batch: 0 };
        let left = pipeline.forward(validate, tokens, shape).await.map_err(failed)?;
        let last = pipeline.loss(validate, tokens, &left, targets, shape, 1.0).await.map_err(failed)?;
        let golden = self.numbers.loss_on_first_batch_after_all_steps;
        self.loss(report, f64::from(last.loss), golden, || format!("{place}, after all steps"));
        Ok(())
    }

    /// Forward and backward of one batch in micro-batches; gives their losses.
    async fn step(
        &self,
        pipeline: &mut Pipeline,
        ids: &[u32],
        targets: &[u32],
        number: usize,
        place: &str,
        report: &mut Report,
    ) -> Result<Vec<f64>, GoldenError> {
        let failed = |error: StageError| GoldenError::Stage { place: place.into(), error };
        let config = &self.numbers.config;
        let count = self.numbers.adamw.micro_batches;
        let shape = [config.batch / count, config.tokens];
        let size = shape[0] * shape[1];
        let mut left = Vec::new();
        for (micro_batch, ids) in (0..).zip(ids.chunks(size)) {
            let pass = Pass::Train { micro_batch };
            left.push(pipeline.forward(pass, ids, shape).await.map_err(failed)?);
        }
        let mut losses = Vec::new();
        let micro_batches = ids.chunks(size).zip(targets.chunks(size)).zip(&left);
        for (micro_batch, ((ids, targets), left)) in (0..).zip(micro_batches) {
            let pass = Pass::Train { micro_batch };
            let scale = 1.0 / count as f32;
            let outcome = pipeline.loss(pass, ids, left, targets, shape, scale).await.map_err(failed)?;
            losses.push(f64::from(outcome.loss));
            let gradients = pipeline.backward(micro_batch, outcome.input_gradient).await.map_err(failed)?;
            if number > 0 {
                continue;
            }
            // The first step's batch is the forward batch; a micro-batch sees its own rows.
            let rows = micro_batch as usize * size * config.d as usize
                ..(micro_batch as usize + 1) * size * config.d as usize;
            for (hop, (hidden, gradient)) in left.iter().zip(&gradients).enumerate() {
                let layers = pipeline.layers_before_exit(hop);
                let at = || format!("{place}, micro-batch {micro_batch}, after {layers} layers");
                let golden = &self.forward.floats(&format!("hidden.{layers}"))?[rows.clone()];
                relative(report, "hidden states", hidden, golden, self.tolerances.activation, at);
                let golden = &self.forward.floats(&format!("grad.hidden.{layers}"))?[rows.clone()];
                relative(
                    report,
                    "gradients of hidden states",
                    gradient,
                    golden,
                    self.tolerances.gradient,
                    at,
                );
            }
        }
        report.note("micro-batches left in flight", pipeline.in_flight() as f64, 0.5, || place.into());
        Ok(losses)
    }

    /// Parameters after the first step, entry by entry.
    async fn updated(
        &self,
        pipeline: &Pipeline,
        clip: f64,
        place: &str,
        report: &mut Report,
    ) -> Result<(), GoldenError> {
        for name in pipeline.names() {
            let found = pipeline.read(&name, Quantity::Value).await?;
            let golden = self.train.floats(&format!("after1.{name}"))?;
            let gradient = self.train.floats(&format!("grad.{name}"))?;
            let table = [shapes::TOKEN_TABLE, shapes::POSITION_TABLE].contains(&name.as_str());
            let keys = key_bias(&name, golden.len());
            for (index, ((found, golden), gradient)) in found.iter().zip(golden).zip(gradient).enumerate() {
                let difference = f64::from(found - golden).abs();
                let at = || format!("{place}, `{name}`[{index}]");
                let clipped = f64::from(gradient.abs()) * clip;
                let settled = clipped >= self.tolerances.settled_from || (table && *gradient == 0.0);
                if settled && !keys.contains(&index) {
                    let tolerance = self.tolerances.settled * f64::from(golden.abs()).max(1.0);
                    report.note("updated parameters, settled", difference, tolerance, at);
                } else {
                    report.note("updated parameters, others", difference, self.tolerances.unsettled, at);
                }
            }
        }
        Ok(())
    }

    /// Sums and lengths of parameters and moments, without the key bias.
    async fn checksums(
        &self,
        pipeline: &Pipeline,
        golden: &Step,
        place: &str,
        report: &mut Report,
    ) -> Result<(), GoldenError> {
        let t = self.tolerances;
        for name in pipeline.names() {
            let (Some(values), Some(&m), Some(&v)) =
                (golden.params.get(&name), golden.adam_m_l2.get(&name), golden.adam_v_l2.get(&name))
            else {
                return Err(GoldenError::Missing(format!("checksums of `{name}`")));
            };
            let at = || format!("{place}, `{name}`");
            let found = checksum(&name, &pipeline.read(&name, Quantity::Value).await?);
            report.note("sums of parameters", (found.sum - values.sum).abs(), t.checksum_sum * values.l2, at);
            report.note("lengths of parameters", (found.l2 - values.l2).abs(), t.checksum_l2 * values.l2, at);
            let found = checksum(&name, &pipeline.read(&name, Quantity::FirstMoment).await?);
            report.note("lengths of m", (found.l2 - m).abs(), t.moments * m, at);
            let found = checksum(&name, &pipeline.read(&name, Quantity::SecondMoment).await?);
            report.note("lengths of v", (found.l2 - v).abs(), t.moments * v, at);
        }
        Ok(())
    }

    fn loss(&self, report: &mut Report, found: f64, golden: f64, place: impl FnOnce() -> String) {
        report.note("losses", (found - golden).abs(), self.tolerances.loss * golden, place);
    }
}
