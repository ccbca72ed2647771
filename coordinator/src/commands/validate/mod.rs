//! What a run would come to on a list of devices, before anybody has joined: step time, efficiency, bytes and memory,
//! for the model asked for and for narrower and wider ones of as many parameters.

pub(super) mod devices;

use std::{fmt::Write, path::PathBuf};

use protocol::spec::{ModelSpec, RunSpec};

use control::pipeline::plan::{self, Plan, PlanError, Stages, frame_bytes};
use devices::Device;

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run's file.
    run: PathBuf,
    /// Devices to predict for, in TOML: [[device]] with gflops, and if known name, memory_mb, up_mbit, down_mbit,
    /// round_trip_ms.
    #[arg(long, value_name = "FILE")]
    devices: Option<PathBuf>,
}

pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { run, devices } = arguments;
    let config = super::serve::load(Some(run))?;
    println!("{}: no fault found in run {}", run.display(), config.name);
    if let Some(devices) = devices {
        let devices = devices::load(devices)?;
        let spec = config.run_spec(config.data.tokenizer.usual_vocabulary());
        print!("{}", report(&spec, config.pipeline.stages, &devices));
    }
    Ok(())
}

/// How many times as many layers the models that are compared have.
const DEPTHS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// One model on the devices.
#[derive(Debug, Clone)]
pub(super) struct Prediction {
    pub model: ModelSpec,
    pub plan: Result<Plan, PlanError>,
    /// Bytes that all workers together send in a step.
    pub bytes_per_step: f64,
}

impl Prediction {
    fn new(run: &RunSpec, stages: Stages, devices: &[Device]) -> Self {
        let measured: Vec<_> =
            devices.iter().enumerate().map(|(i, device)| device.measured(i as u64, run)).collect();
        let plan = plan::make(run, stages, &measured);
        let frames = plan.as_ref().map_or(0.0, |p| {
            // An activation and a gradient between any two hops.
            2.0 * (p.holders.len() as f64 - 1.0) * f64::from(p.micro_batches)
        });
        Self { model: run.model.clone(), bytes_per_step: frames * frame_bytes(run), plan }
    }

    /// Seconds a step, and tokens a second.
    fn speed(&self, run: &RunSpec) -> Option<(f64, f64)> {
        let plan = self.plan.as_ref().ok()?;
        let tokens = f64::from(run.sequences) * f64::from(run.context) * f64::from(plan.micro_batches);
        let seconds = plan.predicted.step_seconds;
        Some((seconds, tokens / seconds))
    }
}

/// The run as it is, then its relatives of equal parameters in the layers, from wide and shallow to narrow and deep.
pub(super) fn predict(run: &RunSpec, stages: Stages, devices: &[Device]) -> (Prediction, Vec<Prediction>) {
    let relatives = DEPTHS
        .iter()
        .filter_map(|depth| relative(run, *depth))
        .map(|run| Prediction::new(&run, stages, devices))
        .collect();
    (Prediction::new(run, stages, devices), relatives)
}

/// The same parameters in `depth` times as many layers: the width goes with the root of it, in whole heads of the same
/// size. None where that gives no model.
fn relative(run: &RunSpec, depth: f64) -> Option<RunSpec> {
    let model = &run.model;
    let layers = (f64::from(model.layers) * depth).round();
    let head = model.width / model.heads.max(1);
    let heads = (f64::from(model.width) / depth.sqrt() / f64::from(head)).round();
    let exact = depth == 1.0 || (f64::from(model.layers) * depth).fract() == 0.0;
    (layers >= 1.0 && heads >= 1.0 && exact).then(|| {
        let mut run = run.clone();
        run.model.layers = layers as u32;
        run.model.heads = heads as u32;
        run.model.width = heads as u32 * head;
        run
    })
}

/// All of it for a person.
pub(super) fn report(run: &RunSpec, stages: Stages, devices: &[Device]) -> String {
    let (own, relatives) = predict(run, stages, devices);
    let mut out = String::new();
    // Writing to a string does not fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    let parameters = run.model.parameters() as f64 / 1e6;
    line(format!("the model has {parameters:.1} million parameters"));
    match &own.plan {
        Err(e) => line(format!("on these devices: {e}")),
        Ok(plan) => {
            let (seconds, speed) = own.speed(run).unwrap_or_default();
            line(format!(
                "a step takes {seconds:.3} s ({speed:.0} tokens/s) with {} micro-batches; the devices compute {:.1} % \
                 of it and send {:.2} MB",
                plan.micro_batches,
                100.0 * plan.predicted.efficiency(),
                own.bytes_per_step / 1e6
            ));
            for (number, stage) in plan.stages.iter().enumerate() {
                let device = &devices[stage.worker.0 as usize];
                let layers: u32 = stage.hops.iter().map(|h| h.part.end_layer - h.part.first_layer).sum();
                let embedding = stage.hops.iter().any(|h| h.part.embedding);
                let head = stage.hops.iter().any(|h| h.part.head);
                line(format!(
                    "  stage {}: {}, {layers} layer{}{}{}: {:.0} MB, busy {:.3} s a step",
                    number + 1,
                    device.name,
                    if layers == 1 { "" } else { "s" },
                    if embedding { ", embedding" } else { "" },
                    if head { ", head" } else { "" },
                    stage.memory_bytes as f64 / 1e6,
                    plan.predicted.busy.get(number).copied().unwrap_or(0.0)
                ));
            }
            let spare = devices.len() - plan.stages.len();
            if spare > 0 {
                line(format!("  {spare} of the devices stand by"));
            }
        }
    }
    line(String::new());
    line("models of about equal parameters in their layers:".into());
    line(
        "| layers | width | parameters | step | tokens/s | efficiency | sent a step | largest stage |".into(),
    );
    line("|---:|---:|---:|---:|---:|---:|---:|---:|".into());
    for relative in &relatives {
        let ModelSpec { layers, width, .. } = relative.model;
        let parameters = relative.model.parameters() as f64 / 1e6;
        let row = match (&relative.plan, relative.speed(run)) {
            (Ok(plan), Some((seconds, speed))) => {
                let largest = plan.stages.iter().map(|s| s.memory_bytes).max().unwrap_or(0) as f64 / 1e6;
                format!(
                    "{seconds:.3} s | {speed:.0} | {:.1} % | {:.2} MB | {largest:.0} MB",
                    100.0 * plan.predicted.efficiency(),
                    relative.bytes_per_step / 1e6
                )
            }
            _ => "does not fit | | | |".into(),
        };
        line(format!("| {layers} | {width} | {parameters:.1} M | {row} |"));
    }
    let snapshot = run.model.parameters() * run.moments.snapshot_bytes();
    line(String::new());
    line(format!("a snapshot takes {:.1} MB", snapshot as f64 / 1e6));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;

    fn device(gflops: f64) -> Device {
        Device {
            name: format!("{gflops} GFLOPS"),
            gflops,
            memory_mb: None,
            up_mbit: Some(50.0),
            down_mbit: Some(50.0),
            round_trip_ms: Some(60.0),
        }
    }

    #[test]
    fn narrow_and_deep_models_have_as_many_parameters_and_send_less() {
        let config = RunConfig::parse("[model]\npreset = \"mini\"", "run.toml").unwrap();
        let run = config.run_spec(256);
        let (own, relatives) = predict(&run, Stages::Auto, &[device(50.0), device(100.0), device(50.0)]);
        let plan = own.plan.unwrap();
        assert_eq!(plan.stages.len(), 3);
        assert!(plan.predicted.efficiency() > 0.3 && plan.predicted.efficiency() <= 1.0);
        let layers = |m: &ModelSpec| u64::from(m.layers) * m.layer_parameters();
        for relative in &relatives {
            let ratio = layers(&relative.model) as f64 / layers(&run.model) as f64;
            assert!((0.8..1.25).contains(&ratio), "{:?}: {ratio}", relative.model);
        }
        let [wide, .., deep] = &relatives[..] else { panic!("{} relatives", relatives.len()) };
        assert!(wide.model.width > deep.model.width && wide.bytes_per_step > deep.bytes_per_step);
    }

    #[test]
    fn the_report_names_every_stage_and_what_does_not_fit() {
        let config = RunConfig::parse("", "run.toml").unwrap();
        let run = config.run_spec(256);
        let words = report(&run, Stages::Auto, &[device(10.0), device(10.0)]);
        assert!(
            words.contains("stage 1: ") && words.contains("stage 2: ") && words.contains("efficiency"),
            "{words}"
        );
        let small = Device { memory_mb: Some(0.5), ..device(10.0) };
        let words = report(&run, Stages::Auto, &[small]);
        assert!(words.contains("does not fit into the memory of 1 device"), "{words}");
    }
}
