//! Robust aggregation and the outer step: `aggregate.json`, `aggregate.safetensors`.

use std::collections::BTreeMap;

use engine::aggregation::{
    AggregateError, Aggregator, Outer, OuterStep, aggregate, median, norm, weighted_mean,
};
use serde::Deserialize;

use super::{
    GoldenError, Report, Source,
    files::{self, Tensors},
};

#[derive(Deserialize)]
struct Vectors {
    shapes: BTreeMap<String, Vec<usize>>,
    groups: BTreeMap<String, Group>,
    identical: Identical,
    outer: OuterVectors,
}

#[derive(Deserialize)]
struct Group {
    count: usize,
    weights: Vec<f64>,
    norms: Vec<f64>,
    median_norm: f64,
    tau: f64,
    rules: Vec<String>,
}

#[derive(Deserialize)]
struct Identical {
    count: usize,
}

#[derive(Deserialize)]
struct OuterVectors {
    workers: usize,
    lr: f64,
    momentum: f64,
    rounds: usize,
}

const FILE: &str = "aggregate.json";
const TENSORS: &str = "aggregate.safetensors";

/// Relative to the largest golden number of a result. The same on a GPU: aggregation runs on the processor.
pub(super) const AGGREGATION: f64 = 2e-6;

/// A rule of the vectors.
enum Rule {
    Weighted,
    Of { aggregator: Aggregator, from_previous: bool },
}

impl Rule {
    /// From its name there: `trimmed_mean_2`, `centred_clip_previous_3`.
    fn named(name: &str, tau: f64) -> Option<Rule> {
        let of = |aggregator| Some(Rule::Of { aggregator, from_previous: false });
        match name {
            "mean" => of(Aggregator::Mean),
            "weighted_mean" => Some(Rule::Weighted),
            "median" => of(Aggregator::Median),
            "clip_to_median_norm" => of(Aggregator::ClipToMedianNorm),
            _ => {
                if let Some(trim) = name.strip_prefix("trimmed_mean_") {
                    return of(Aggregator::TrimmedMean { trim: trim.parse().ok()? });
                }
                let (start, iterations) = name.strip_prefix("centred_clip_")?.split_once('_')?;
                let iterations = iterations.parse().ok()?;
                let aggregator = Aggregator::CentredClip { radius: Some(tau), iterations };
                Some(Rule::Of { aggregator, from_previous: start == "previous" })
            }
        }
    }

    fn apply(
        &self,
        contributions: &[&[f32]],
        weights: &[f64],
        previous: &[f32],
    ) -> Result<Vec<f32>, AggregateError> {
        match self {
            Rule::Weighted => weighted_mean(contributions, weights),
            Rule::Of { aggregator, from_previous } => {
                aggregate(aggregator, contributions, from_previous.then_some(previous))
            }
        }
    }
}

pub(super) fn check(source: Source<'_>, report: &mut Report) -> Result<(), GoldenError> {
    let vectors: Vectors = files::json(source, FILE)?;
    let tensors = Tensors::open(source, TENSORS)?;
    let flat = |prefix: &str| flat(&tensors, &vectors.shapes, prefix);
    let malformed = |reason: String| GoldenError::Malformed { file: FILE.into(), reason };

    let same = flat("identical.in")?;
    for (name, group) in &vectors.groups {
        let contributions: Vec<Vec<f32>> =
            (0..group.count).map(|i| flat(&format!("{name}.in.{i}"))).collect::<Result<_, _>>()?;
        let contributions: Vec<&[f32]> = contributions.iter().map(Vec::as_slice).collect();
        let previous = flat(&format!("{name}.previous"))?;

        let norms: Vec<f64> = contributions.iter().map(|contribution| norm(contribution)).collect();
        // Zero is exact.
        let of_value = |golden: f64| AGGREGATION * golden.max(1e-30);
        for (index, (found, golden)) in norms.iter().zip(&group.norms).enumerate() {
            report.note("aggregation: lengths", (found - golden).abs(), of_value(*golden), || {
                format!("{name}, contribution {index}")
            });
        }
        let difference = (median(&norms) - group.median_norm).abs();
        report.note("aggregation: lengths", difference, of_value(group.median_norm), || {
            format!("{name}, median")
        });

        for rule_name in &group.rules {
            let place = || format!("{name}, {rule_name}");
            let failed = |error: AggregateError| malformed(format!("{}: {error}", place()));
            let rule = Rule::named(rule_name, group.tau)
                .ok_or_else(|| malformed(format!("{} is a rule this program does not have", place())))?;
            let found = rule.apply(&contributions, &group.weights, &previous).map_err(failed)?;
            compare("aggregation", &found, &flat(&format!("{name}.{rule_name}"))?, report, place);

            // Copies must come back: as many as asked for, any weights, a radius that clips none.
            let copies = vec![same.as_slice(); vectors.identical.count];
            let weights: Vec<f64> = (1..=copies.len()).map(|weight| weight as f64).collect();
            let rule = Rule::named(rule_name, 1e9)
                .ok_or_else(|| malformed(format!("{} is a rule this program does not have", place())))?;
            let found = rule.apply(&copies, &weights, &previous).map_err(failed)?;
            compare("aggregation: copies", &found, &same, report, place);
        }
    }
    check_outer(&vectors.outer, &flat, report)
}

fn check_outer(
    vectors: &OuterVectors,
    flat: &dyn Fn(&str) -> Result<Vec<f32>, GoldenError>,
    report: &mut Report,
) -> Result<(), GoldenError> {
    let failed =
        |error: AggregateError| GoldenError::Malformed { file: FILE.into(), reason: error.to_string() };
    let mut theta = flat("outer.theta.0")?;
    let rule = OuterStep::Nesterov { learning_rate: vectors.lr, momentum: vectors.momentum };
    let mut outer = Outer::new(rule);
    for round in 1..=vectors.rounds {
        let deltas: Vec<Vec<f32>> = (0..vectors.workers)
            .map(|worker| flat(&format!("outer.in.{round}.{worker}")))
            .collect::<Result<_, _>>()?;
        let deltas: Vec<&[f32]> = deltas.iter().map(Vec::as_slice).collect();
        let mean = aggregate(&Aggregator::Mean, &deltas, None).map_err(failed)?;
        outer.step(&mut theta, &mean).map_err(failed)?;
        let place = || format!("round {round}");
        compare("outer step: weights", &theta, &flat(&format!("outer.theta.{round}"))?, report, place);
        let momentum = outer.momentum().unwrap_or_default();
        compare("outer step: momentum", momentum, &flat(&format!("outer.momentum.{round}"))?, report, place);
    }
    Ok(())
}

/// All tensors of a contribution, one after the other.
fn flat(
    tensors: &Tensors,
    shapes: &BTreeMap<String, Vec<usize>>,
    prefix: &str,
) -> Result<Vec<f32>, GoldenError> {
    let mut all = Vec::new();
    for (name, shape) in shapes {
        let values = tensors.floats(&format!("{prefix}.{name}"))?;
        if values.len() != shape.iter().product::<usize>() {
            let reason = format!("`{prefix}.{name}` is not of shape {shape:?}");
            return Err(GoldenError::Malformed { file: TENSORS.into(), reason });
        }
        all.extend_from_slice(values);
    }
    Ok(all)
}

fn compare(
    kind: &'static str,
    found: &[f32],
    golden: &[f32],
    report: &mut Report,
    place: impl Fn() -> String,
) {
    let largest = golden.iter().fold(0.0_f64, |largest, &value| largest.max(f64::from(value).abs()));
    let missing = found.len().abs_diff(golden.len());
    report.note(kind, missing as f64, 0.5, || format!("{}: {missing} numbers too few or too many", place()));
    for (index, (&found, &golden)) in found.iter().zip(golden).enumerate() {
        let difference = (f64::from(found) - f64::from(golden)).abs();
        report.note(kind, difference, AGGREGATION * largest, || format!("{}, number {index}", place()));
    }
}
