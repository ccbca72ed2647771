//! The noise schedule: `schedule.json`.

use engine::denoiser::noise::{
    NoiseLaw, NoiseSchedule, Preconditioning, SIGMA_DATA, normal_cdf, normal_quantile, owner,
};
use serde::Deserialize;

use super::{GoldenError, Report, Source, files};

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
    edm: Vec<Edm>,
    normal_cdf: Vec<Cdf>,
    normal_quantile: Vec<Quantile>,
}

#[derive(Deserialize)]
struct Case {
    sigma_min: f64,
    sigma_max: f64,
    #[serde(rename = "B")]
    blocks: u32,
    gamma: f64,
    p_mean: f64,
    p_std: f64,
    cdf_at_ends: [f64; 2],
    boundaries: Vec<f64>,
    train_ranges: Vec<[f64; 2]>,
    train_quantiles: Vec<[f64; 2]>,
    one_sweep: Vec<f64>,
    sweeps: Vec<Sweep>,
    sigma_from_uniform: Vec<Draw>,
    routing: Vec<Routing>,
}

#[derive(Deserialize)]
struct Sweep {
    steps: u32,
    sigmas: Vec<f64>,
    blocks: Vec<u32>,
    steps_exactly_on_a_boundary: Vec<usize>,
}

#[derive(Deserialize)]
struct Draw {
    block: u32,
    u: f64,
    sigma: f64,
}

#[derive(Deserialize)]
struct Routing {
    what: String,
    sigma: f64,
    block: u32,
    own_boundaries: bool,
}

#[derive(Deserialize)]
struct Edm {
    sigma: f64,
    sigma_data: f64,
    c_skip: f64,
    c_out: f64,
    c_in: f64,
    c_noise: f64,
    w: f64,
}

#[derive(Deserialize)]
struct Cdf {
    x: f64,
    cdf: f64,
}

#[derive(Deserialize)]
struct Quantile {
    q: f64,
    x: f64,
}

const FILE: &str = "schedule.json";

/// Of value. The same on a GPU: all of it is f64 on the processor.
pub(super) const SCHEDULE: f64 = 1e-8;
const EDM: f64 = 1e-12;
/// Exact results: equal, or off by more than this.
const EXACT: f64 = f64::MIN_POSITIVE;

/// Reads numbers to the last bit, as some lie one step of f64 below a boundary: serde_json must have its
/// feature `float_roundtrip`.
pub(super) fn check(source: Source<'_>, report: &mut Report) -> Result<(), GoldenError> {
    let vectors: Vectors = files::json(source, FILE)?;
    for (number, case) in vectors.cases.iter().enumerate() {
        check_case(number, case, report)?;
    }
    for golden in &vectors.edm {
        check_edm(golden, report);
    }
    for Cdf { x, cdf } in &vectors.normal_cdf {
        of_value(report, "schedule: Phi", normal_cdf(*x), *cdf, || format!("x {x}"));
    }
    for Quantile { q, x } in &vectors.normal_quantile {
        // The median is 0, for which the reference's bisection gives 1e-51.
        let difference = (normal_quantile(*q) - x).abs();
        report
            .note("schedule: inverse of Phi", difference, SCHEDULE * x.abs().max(1e-8), || format!("q {q}"));
    }
    Ok(())
}

fn check_case(number: usize, case: &Case, report: &mut Report) -> Result<(), GoldenError> {
    let law = NoiseLaw { mean: case.p_mean, deviation: case.p_std };
    let schedule = NoiseSchedule::new(law, case.sigma_min, case.sigma_max, case.blocks, case.gamma).map_err(
        |error| GoldenError::Malformed { file: FILE.into(), reason: format!("case {number}: {error}") },
    )?;

    let ends = [law.cdf(case.sigma_min), law.cdf(case.sigma_max)];
    all(report, "schedule: F", &ends, &case.cdf_at_ends, || format!("case {number}, ends"));
    all(report, "schedule: boundaries", schedule.boundaries(), &case.boundaries, || format!("case {number}"));
    let ends = |sigmas: &[f64]| [sigmas.first().copied(), sigmas.last().copied()];
    exact(report, ends(schedule.boundaries()) == ends(&[case.sigma_min, case.sigma_max]), || {
        format!("case {number}, ends of the boundaries")
    });

    exact(report, case.train_ranges.len() == case.blocks as usize, || format!("case {number}, blocks"));
    for block in 0..case.blocks {
        let place = || format!("case {number}, block {block}");
        let at = block as usize;
        let (range, quantiles) = (schedule.training_range(block), schedule.training_quantiles(block));
        let golden = case.train_ranges.get(at).map_or(&[][..], |range| range);
        all(report, "schedule: training ranges", &[range.0, range.1], golden, place);
        let golden = case.train_quantiles.get(at).map_or(&[][..], |quantiles| quantiles);
        all(report, "schedule: F", &[quantiles.0, quantiles.1], golden, place);
        let own = schedule.range(block);
        let golden = case.boundaries.windows(2).rev().nth(at).unwrap_or_default();
        all(report, "schedule: boundaries", &[own.0, own.1], golden, place);
    }
    for Draw { block, u, sigma } in &case.sigma_from_uniform {
        let found = schedule.sigma(*block, *u);
        of_value(report, "schedule: sigma of u", found, *sigma, || {
            format!("case {number}, block {block}, u {u}")
        });
    }

    all(report, "schedule: sweeps", &schedule.one_sweep(), &case.one_sweep, || format!("case {number}"));
    for golden in &case.sweeps {
        let sigmas = schedule.sweep(golden.steps);
        let place = || format!("case {number}, {} steps", golden.steps);
        all(report, "schedule: sweeps", &sigmas, &golden.sigmas, place);
        exact(report, ends(&sigmas) == ends(&golden.sigmas), || format!("{}, ends", place()));
        exact(report, sigmas.len() == golden.blocks.len(), || format!("{}, owners", place()));
        for (step, (sigma, block)) in sigmas.iter().zip(&golden.blocks).enumerate() {
            if !golden.steps_exactly_on_a_boundary.contains(&step) {
                exact(report, schedule.owner(*sigma) == *block, || format!("{}, step {step}", place()));
            }
        }
    }
    for Routing { what, sigma, block, own_boundaries } in &case.routing {
        let found = if *own_boundaries { schedule.owner(*sigma) } else { owner(&case.boundaries, *sigma) };
        exact(report, found == *block, || format!("case {number}, {what}: block {found}, not {block}"));
    }
    Ok(())
}

fn check_edm(golden: &Edm, report: &mut Report) {
    let found = Preconditioning::at(golden.sigma);
    let place = || format!("sigma {}", golden.sigma);
    exact(report, golden.sigma_data == SIGMA_DATA, || format!("{}, sigma_data", place()));
    let pairs = [
        (found.c_skip, golden.c_skip),
        (found.c_out, golden.c_out),
        (found.c_in, golden.c_in),
        (found.weight, golden.w),
    ];
    for (number, (found, golden)) in pairs.into_iter().enumerate() {
        report.note("schedule: EDM", (found - golden).abs(), EDM * golden.abs(), || {
            format!("{}, coefficient {number}", place())
        });
    }
    report.note("schedule: EDM c_noise", (found.c_noise - golden.c_noise).abs(), EDM, place);
}

/// Numbers relative to themselves, and as many as there should be.
fn all(
    report: &mut Report,
    kind: &'static str,
    found: &[f64],
    golden: &[f64],
    place: impl Fn() -> String + Copy,
) {
    exact(report, found.len() == golden.len(), || format!("{}, {kind}: {} numbers", place(), found.len()));
    for (index, (found, golden)) in found.iter().zip(golden).enumerate() {
        of_value(report, kind, *found, *golden, || format!("{}, number {index}", place()));
    }
}

fn of_value(
    report: &mut Report,
    kind: &'static str,
    found: f64,
    golden: f64,
    place: impl FnOnce() -> String,
) {
    report.note(kind, (found - golden).abs(), SCHEDULE * golden.abs(), place);
}

fn exact(report: &mut Report, holds: bool, place: impl FnOnce() -> String) {
    report.note("schedule: exact", if holds { 0.0 } else { 1.0 }, EXACT, place);
}
