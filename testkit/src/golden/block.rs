//! The block denoiser: forward, every gradient, one step, the one-sweep inference: the sets `block-*`.

use std::collections::BTreeMap;

use engine::{
    denoiser::{BlockError, Replica, evaluate::cross_entropy, shapes, sweep::Composed},
    device::Device,
    parameters::Quantity,
};
use protocol::spec::{BlockSpec, ModelSpec, RunSpec};
use serde::Deserialize;

use super::{
    GoldenError, Report, Source, Tolerances,
    adamw::Rule,
    compare::{Checksum, checksum, key_bias, relative},
    files::{self, Tensors},
};
use crate::fixtures;

#[derive(Deserialize)]
#[allow(non_snake_case, reason = "the names of the file")]
struct Config {
    vocab: u32,
    d: u32,
    heads: u32,
    T: usize,
    T_max: u32,
    B: u32,
    L_b: u32,
    batch: usize,
    sigma_min: f64,
    sigma_max: f64,
    p_mean: f64,
    p_std: f64,
    gamma: f64,
}

#[derive(Deserialize)]
struct BlockNumbers {
    block: u32,
    ce: f64,
    ce_per_sequence: Vec<f64>,
    w_per_sequence: Vec<f64>,
    loss: f64,
    grad_norm: f64,
    clip_factor: f64,
    params_after_step_1: BTreeMap<String, Checksum>,
}

#[derive(Deserialize)]
struct Sweep {
    sigmas: Vec<f64>,
    final_ce: f64,
    ce_after_step: Vec<f64>,
    ce_after_step_from_zero: Vec<f64>,
}

#[derive(Deserialize)]
struct Numbers {
    config: Config,
    adamw: Rule,
    blocks: Vec<BlockNumbers>,
    sweep: Sweep,
}

struct Set<'a> {
    name: &'a str,
    numbers: Numbers,
    run: RunSpec,
    weights: Vec<u8>,
    train: Tensors,
    after: Tensors,
    sweep: Tensors,
    tolerances: &'a Tolerances,
    device: &'a Device,
}

pub(super) async fn check(
    name: &str,
    source: Source<'_>,
    device: &Device,
    tolerances: &Tolerances,
    report: &mut Report,
) -> Result<(), GoldenError> {
    let numbers: Numbers = files::json(source, &format!("{name}.json"))?;
    let c = &numbers.config;
    let base = fixtures::block_run();
    let run = RunSpec {
        name: name.into(),
        model: ModelSpec {
            vocabulary: c.vocab,
            positions: c.T_max,
            width: c.d,
            heads: c.heads,
            layers: c.B * c.L_b,
            tie_embeddings: false,
        },
        optimizer: numbers.adamw.spec(),
        sequences: c.batch as u32,
        context: c.T as u32,
        blocks: base.blocks.map(|blocks| BlockSpec {
            count: c.B,
            sigma_min: c.sigma_min,
            sigma_max: c.sigma_max,
            p_mean: c.p_mean,
            p_std: c.p_std,
            gamma: c.gamma,
            ..blocks
        }),
        ..base
    };
    let tensors = |part: &str| Tensors::open(source, &format!("{name}.{part}.safetensors"));
    let set = Set {
        name,
        weights: files::bytes(source, &format!("{name}.weights.safetensors"))?,
        train: tensors("train")?,
        after: tensors("after1")?,
        sweep: tensors("sweep")?,
        run,
        numbers,
        tolerances,
        device,
    };
    for golden in &set.numbers.blocks {
        set.block(golden, report).await?;
    }
    set.inference(report).await
}

impl Set<'_> {
    fn failed(&self, what: String) -> impl Fn(BlockError) -> GoldenError {
        let place = format!("{}, {what}", self.name);
        move |error| GoldenError::Block { place: place.clone(), error }
    }

    fn shape(&self) -> [usize; 2] {
        [self.numbers.config.batch, self.numbers.config.T]
    }

    fn replica(&self, block: u32) -> Result<Replica, GoldenError> {
        Replica::import(&self.run, block, &[&self.weights], self.device)
            .map_err(self.failed(format!("block {block}")))
    }

    /// Forward, gradients and one step of one block.
    async fn block(&self, golden: &BlockNumbers, report: &mut Report) -> Result<(), GoldenError> {
        let b = golden.block;
        let place = || format!("{}, block {b}", self.name);
        let failed = self.failed(format!("block {b}"));
        let t = self.tolerances;
        let mut replica = self.replica(b)?;
        let (x, y) = (self.train.ids("x")?, self.train.ids("y")?);
        let n = self.numbers.config.batch;
        let sigma = &self.train.floats("sigma")?[b as usize * n..(b as usize + 1) * n];
        let eps = self.train.floats("eps")?;

        let model = Composed::new(self.replicas()?).await.map_err(&failed)?;
        let z = model.noised(y, sigma, eps, self.shape()).map_err(&failed)?;
        let h0 = replica.layer_input(x, &z, sigma, self.shape()).await.map_err(&failed)?;
        relative(report, "block: h0", &h0, self.train.floats(&format!("b{b}.h0"))?, t.entry, place);
        let (zhat, logits) = replica.outcome(x, &z, sigma, self.shape()).await.map_err(&failed)?;
        relative(
            report,
            "block: zhat",
            &zhat,
            self.train.floats(&format!("b{b}.zhat"))?,
            t.activation,
            place,
        );
        let expected = self.train.floats(&format!("b{b}.logits"))?;
        relative(report, "block: logits", &logits, expected, t.activation, place);

        let scores = replica.accumulate(x, y, sigma, eps.to_vec(), self.shape()).await.map_err(&failed)?;
        for (found, golden) in scores.iter().zip(&golden.ce_per_sequence) {
            let difference = (f64::from(*found) - golden).abs();
            report.note("block: cross-entropies", difference, t.loss * golden, place);
        }
        let mean = scores.iter().map(|score| f64::from(*score)).sum::<f64>() / scores.len() as f64;
        report.note("block: cross-entropies", (mean - golden.ce).abs(), t.loss * golden.ce, place);
        let weighted = scores.iter().zip(&golden.w_per_sequence).map(|(score, w)| f64::from(*score) * w);
        let loss = weighted.sum::<f64>() / scores.len() as f64;
        report.note("block: weighted losses", (loss - golden.loss).abs(), t.loss * golden.loss, place);

        for (index, shape) in replica.parameters().shapes().iter().enumerate() {
            let found = replica.parameters().read(index, Quantity::Gradient).await?;
            let expected = self.train.floats(&format!("b{b}.grad.{}", shape.name))?;
            let at = || format!("{}, block {b}, `{}`", self.name, shape.name);
            let keys = key_bias(&shape.name, expected.len());
            for key in keys.clone() {
                report.note("block: key bias", f64::from(found[key]).abs(), t.key_bias, at);
            }
            // Of a bias with a part that is exactly 0, the rest is compared.
            let rest = |values: &[f32]| [&values[..keys.start], &values[keys.end..]].concat();
            relative(report, "block: gradients", &rest(&found), &rest(expected), t.gradient, at);
        }

        let norm = replica.update(self.numbers.adamw.lr).await.map_err(&failed)?;
        report.note("block: norms", (norm - golden.grad_norm).abs(), t.norm * golden.grad_norm, place);
        let clip = self.run.optimizer.clip_scale(norm);
        report.note(
            "block: clip factors",
            (clip - golden.clip_factor).abs(),
            t.norm * golden.clip_factor,
            place,
        );
        self.updated(&replica, golden, report).await
    }

    /// Parameters after the step, entry by entry, and their checksums.
    async fn updated(
        &self,
        replica: &Replica,
        golden: &BlockNumbers,
        report: &mut Report,
    ) -> Result<(), GoldenError> {
        let (b, t) = (golden.block, self.tolerances);
        for (index, shape) in replica.parameters().shapes().iter().enumerate() {
            let name = &shape.name;
            let found = replica.parameters().read(index, Quantity::Value).await?;
            let expected = self.after.floats(&format!("b{b}.after1.{name}"))?;
            let gradient = self.train.floats(&format!("b{b}.grad.{name}"))?;
            let keys = key_bias(name, expected.len());
            let table = name == shapes::TABLE || name.ends_with(".positions.weight");
            for (place, ((found, golden_value), gradient)) in
                found.iter().zip(expected).zip(gradient).enumerate()
            {
                let difference = f64::from(found - golden_value).abs();
                let at = || format!("{}, block {b}, `{name}`[{place}]", self.name);
                let clipped = f64::from(gradient.abs()) * golden.clip_factor;
                let settled = clipped >= t.settled_from || (table && *gradient == 0.0);
                if settled && !keys.contains(&place) {
                    let tolerance = t.settled * f64::from(golden_value.abs()).max(1.0);
                    report.note("block: updated parameters, settled", difference, tolerance, at);
                } else {
                    report.note("block: updated parameters, others", difference, t.unsettled, at);
                }
            }
            let values = golden.params_after_step_1.get(name).ok_or_else(|| {
                GoldenError::Missing(format!("checksums of `{name}` after the step of block {b}"))
            })?;
            let sums = checksum(name, &found);
            let at = || format!("{}, block {b}, `{name}`", self.name);
            report.note("block: sums", (sums.sum - values.sum).abs(), t.checksum_sum * values.l2, at);
            report.note("block: lengths", (sums.l2 - values.l2).abs(), t.checksum_l2 * values.l2, at);
        }
        Ok(())
    }

    fn replicas(&self) -> Result<Vec<Replica>, GoldenError> {
        (0..self.numbers.config.B).map(|block| self.replica(block)).collect()
    }

    /// One sweep from noise, and one from zeros.
    async fn inference(&self, report: &mut Report) -> Result<(), GoldenError> {
        let failed = self.failed("the sweep".into());
        let t = self.tolerances;
        let model = Composed::new(self.replicas()?).await.map_err(&failed)?;
        let golden = &self.numbers.sweep;
        for (found, golden) in model.schedule().one_sweep().iter().zip(&golden.sigmas) {
            report.note("sweep: sigmas", (found - golden).abs(), 1e-8 * golden, || self.name.into());
        }
        let (x, y) = (self.sweep.ids("x")?, self.sweep.ids("y")?);
        let start = self.sweep.floats("z.0")?;
        let mut states = Vec::new();
        let logits = model.states(x, start.to_vec(), self.shape(), &mut states).await.map_err(&failed)?;
        let vocabulary = self.numbers.config.vocab as usize;
        for (step, (state, logits)) in states.iter().zip(&logits).enumerate() {
            let place = || format!("{}, step {step} of the sweep", self.name);
            relative(report, "sweep: z", state, self.sweep.floats(&format!("z.{step}"))?, t.entry, place);
            let expected = self.sweep.floats(&format!("logits.{step}"))?;
            relative(report, "sweep: logits", logits, expected, t.activation, place);
            let (found, golden) = (cross_entropy(logits, y, vocabulary), golden.ce_after_step[step]);
            report.note("sweep: cross-entropies", (found - golden).abs(), t.loss * golden, place);
        }
        let last = logits.last().map_or(f64::NAN, |last| cross_entropy(last, y, vocabulary));
        let difference = (last - golden.final_ce).abs();
        report.note("sweep: cross-entropies", difference, t.loss * golden.final_ce, || self.name.into());
        let zeros = vec![0.0; start.len()];
        let logits = model.sweep(x, zeros, self.shape()).await.map_err(&failed)?;
        for (logits, golden) in logits.iter().zip(&golden.ce_after_step_from_zero) {
            let found = cross_entropy(logits, y, vocabulary);
            report.note("sweep: from zero", (found - golden).abs(), t.loss * golden, || self.name.into());
        }
        Ok(())
    }
}
