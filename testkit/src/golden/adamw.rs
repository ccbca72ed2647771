//! AdamW alone on given gradients: `adamw.json`.

use std::collections::BTreeMap;

use engine::{
    device::Device,
    init::Start,
    parameters::{ParameterSet, ParameterShape, Quantity},
};
use protocol::spec::OptimizerSpec;
use serde::Deserialize;

use super::{GoldenError, Report, Source, Tolerances, files};

/// The optimizer of a set of vectors.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Rule {
    pub lr: f64,
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    clip_norm: f64,
}

impl Rule {
    pub(super) fn spec(&self) -> OptimizerSpec {
        OptimizerSpec {
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.eps,
            weight_decay: self.weight_decay,
            clip_norm: self.clip_norm,
        }
    }
}

#[derive(Deserialize)]
struct Vectors {
    adamw: Rule,
    shapes: BTreeMap<String, Vec<usize>>,
    start: BTreeMap<String, Vec<f32>>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    grads: BTreeMap<String, Vec<f32>>,
    norm: f64,
    factor: f64,
    params: BTreeMap<String, Vec<f64>>,
    m: BTreeMap<String, Vec<f64>>,
    v: BTreeMap<String, Vec<f64>>,
}

const FILE: &str = "adamw.json";

pub(super) async fn check(
    source: Source<'_>,
    device: &Device,
    tolerances: &Tolerances,
    report: &mut Report,
) -> Result<(), GoldenError> {
    let vectors: Vectors = files::json(source, FILE)?;
    let malformed = |name: &str| GoldenError::Malformed {
        file: FILE.into(),
        reason: format!("`{name}` is missing, or not of its shape"),
    };
    let lookup =
        |map: &BTreeMap<String, Vec<f32>>, name: &str| map.get(name).cloned().ok_or_else(|| malformed(name));
    let shapes: Vec<ParameterShape> = vectors
        .shapes
        .iter()
        .map(|(name, shape)| ParameterShape { name: name.clone(), shape: shape.clone(), start: Start::Zeros })
        .collect();
    let start = shapes
        .iter()
        .map(|shape| Ok((shape.clone(), lookup(&vectors.start, &shape.name)?)))
        .collect::<Result<_, GoldenError>>()?;
    let optimizer = vectors.adamw.spec();
    let mut set = ParameterSet::from_values(start, device)?;
    for (number, step) in vectors.steps.iter().enumerate() {
        for ParameterShape { name, .. } in &shapes {
            set.add_gradient(name, &lookup(&step.grads, name)?)?;
        }
        let norm = libm::sqrt(set.squared_norm().await?);
        report.note("AdamW: norm", (norm - step.norm).abs(), tolerances.norm * step.norm.max(1e-30), || {
            format!("step {number}")
        });
        let factor = optimizer.clip_scale(norm);
        report.note("AdamW: factor", (factor - step.factor).abs(), tolerances.norm * step.factor, || {
            format!("step {number}")
        });
        set.apply(factor, vectors.adamw.lr, &optimizer)?;
        for (index, shape) in shapes.iter().enumerate() {
            let quantities = [
                ("AdamW: parameters", Quantity::Value, &step.params),
                ("AdamW: m", Quantity::FirstMoment, &step.m),
                ("AdamW: v", Quantity::SecondMoment, &step.v),
            ];
            for (kind, quantity, golden) in quantities {
                let golden = golden.get(&shape.name).filter(|golden| golden.len() == shape.len());
                let golden = golden.ok_or_else(|| malformed(&shape.name))?;
                let found = set.read(index, quantity).await?;
                for (place, (found, golden)) in found.iter().zip(golden).enumerate() {
                    let difference = (f64::from(*found) - golden).abs();
                    report.note(kind, difference, tolerances.adamw, || {
                        format!("step {number}, `{}`[{place}]", shape.name)
                    });
                }
            }
        }
    }
    Ok(())
}
