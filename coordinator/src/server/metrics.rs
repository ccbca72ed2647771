//! `/metrics` in the text format of Prometheus (OpenMetrics), made of the run's view when it is asked for: no series
//! outlives its worker, and nothing is counted twice.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use protocol::{
    message::Pressure,
    view::{RunView, WorkerView},
};

use super::{Shared, answers::problem};

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let text = shared.view.borrow().clone();
    let written = serde_json::from_slice(&text).map_err(|e| e.to_string()).and_then(|view: RunView| {
        let mut registry = Registry::default();
        let (frames, bytes) = shared.hub.relayed();
        let traversals = shared.serving.traversals.begun();
        registry.register_collector(Box::new(Collector { view, frames, bytes, traversals }));
        let mut out = String::new();
        encode(&mut out, &registry).map_err(|e| e.to_string())?;
        Ok(out)
    });
    match written {
        Ok(text) => {
            ([(header::CONTENT_TYPE, TYPE), (header::CACHE_CONTROL, "no-store")], text).into_response()
        }
        Err(e) => problem(axum::http::StatusCode::INTERNAL_SERVER_ERROR, &format!("no metrics: {e}")),
    }
}

#[derive(Debug)]
struct Collector {
    view: RunView,
    frames: u64,
    bytes: u64,
    /// Of texts, through the stages of the workers.
    traversals: u64,
}

/// Name, help and value of a gauge that every worker has.
type OfWorker = (&'static str, &'static str, fn(&WorkerView) -> Option<f64>);

type Written = Result<(), std::fmt::Error>;

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> Written {
        self.run(&mut out)?;
        self.rounds(&mut out)?;
        self.workers(&mut out)
    }
}

/// A gauge without labels; nothing where there is no value.
fn gauge(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: Option<f64>,
) -> Written {
    let Some(value) = value else { return Ok(()) };
    let gauge = ConstGauge::new(value);
    gauge.encode(out.encode_descriptor(name, help, unit, gauge.metric_type())?)
}

impl Collector {
    fn run(&self, out: &mut DescriptorEncoder<'_>) -> Written {
        let view = &self.view;
        let per_second = Unit::Other("tokens_per_second".into());
        let nats = Unit::Other("nats".into());
        let steps = Unit::Other("steps".into());
        let ratio = unit_of_ratios();
        gauge(
            out,
            "cohort_run_done",
            "Optimizer steps the weights have seen",
            Some(&steps),
            Some(view.step as f64),
        )?;
        gauge(
            out,
            "cohort_run_wanted",
            "Optimizer steps of the whole run",
            Some(&steps),
            Some(view.steps as f64),
        )?;
        gauge(
            out,
            "cohort_run_snapshot",
            "Steps the newest complete snapshot has seen",
            Some(&steps),
            view.snapshot_step.map(|s| s as f64),
        )?;
        gauge(out, "cohort_run_epoch", "Number of the plan", None, Some(view.epoch as f64))?;
        gauge(out, "cohort_train_loss", "Mean cross-entropy of the last step", Some(&nats), view.train_loss)?;
        gauge(
            out,
            "cohort_validation_loss",
            "Mean cross-entropy on the held-out split",
            Some(&nats),
            view.validation_loss,
        )?;
        gauge(out, "cohort_speed", "Training speed", Some(&per_second), Some(view.tokens_per_second))?;
        gauge(
            out,
            "cohort_pipeline_efficiency",
            "Computing time of all stages over stages times wall time, last step",
            Some(&ratio),
            view.efficiency,
        )?;
        gauge(
            out,
            "cohort_pipeline_balance",
            "Mean over longest computing time of a stage, last step",
            Some(&ratio),
            view.balance,
        )?;
        gauge(
            out,
            "cohort_predicted_step",
            "What the plan promises a step takes",
            Some(&Unit::Seconds),
            view.predicted_step_seconds,
        )?;
        gauge(out, "cohort_workers", "Connected workers", None, Some(view.workers.len() as f64))?;
        let frames = ConstCounter::new(self.frames);
        frames.encode(out.encode_descriptor(
            "cohort_relayed_frames",
            "Tensor frames passed on",
            None,
            frames.metric_type(),
        )?)?;
        let traversals = ConstCounter::new(self.traversals);
        traversals.encode(out.encode_descriptor(
            "cohort_text_traversals",
            "Passes of new tokens through the stages of the workers",
            None,
            traversals.metric_type(),
        )?)?;
        let bytes = ConstCounter::new(self.bytes);
        bytes.encode(out.encode_descriptor(
            "cohort_relayed",
            "Tensor frames passed on",
            Some(&Unit::Bytes),
            bytes.metric_type(),
        )?)?;
        let sample = ConstCounter::new(0u64);
        let mut family = out.encode_descriptor(
            "cohort_refusals",
            "Frames, reports and workers turned away",
            None,
            sample.metric_type(),
        )?;
        for (reason, count) in &view.refusals {
            ConstCounter::new(*count).encode(family.encode_family(&[("reason", reason.as_str())])?)?;
        }
        Ok(())
    }

    /// What only a run in block mode has.
    fn rounds(&self, out: &mut DescriptorEncoder<'_>) -> Written {
        let Some(rounds) = &self.view.rounds else { return Ok(()) };
        let nats = Unit::Other("nats".into());
        let ratio = unit_of_ratios();
        gauge(out, "cohort_round", "Rounds done", None, Some(rounds.round as f64))?;
        gauge(out, "cohort_rounds_wanted", "Rounds of the whole run", None, Some(rounds.rounds as f64))?;
        gauge(
            out,
            "cohort_round_deadline",
            "What the round under way may take; 0 while none is open",
            Some(&Unit::Seconds),
            Some(rounds.deadline_seconds),
        )?;
        gauge(
            out,
            "cohort_round_duration",
            "What the last round took",
            Some(&Unit::Seconds),
            rounds.round_seconds,
        )?;
        gauge(
            out,
            "cohort_participation",
            "Accepted deltas over assigned replicas in the last round",
            Some(&ratio),
            rounds.participation,
        )?;
        gauge(
            out,
            "cohort_participation_mean",
            "Mean of that over all rounds",
            Some(&ratio),
            rounds.mean_participation,
        )?;
        gauge(
            out,
            "cohort_cross_entropy_from_noise",
            "One sweep from one draw of noise on the held-out split, newest measurement",
            Some(&nats),
            rounds.evaluation.as_ref().map(|(_, scores)| scores.one_draw),
        )?;
        let sample = ConstCounter::new(0u64);
        let mut deltas = out.encode_descriptor(
            "cohort_deltas",
            "Deltas by what became of them",
            None,
            sample.metric_type(),
        )?;
        for (outcome, count) in [("accepted", rounds.accepted), ("refused", rounds.refused)] {
            ConstCounter::new(count).encode(deltas.encode_family(&[("outcome", outcome)])?)?;
        }
        let mut traffic = out.encode_descriptor(
            "cohort_round_traffic",
            "Bytes to workers and from them, for accepted deltas",
            Some(&Unit::Bytes),
            sample.metric_type(),
        )?;
        for (way, count) in [("down", rounds.bytes_down), ("up", rounds.bytes_up)] {
            ConstCounter::new(count).encode(traffic.encode_family(&[("way", way)])?)?;
        }
        self.each(out, "block", "Block that it is at, from 0", None, |w| Some(f64::from(w.replica?.block?)))?;
        self.each(
            out,
            "round",
            "From the opening of its last accepted round to its delta",
            Some(&Unit::Seconds),
            |w| w.replica?.round_seconds,
        )?;
        self.each(out, "accepted_deltas", "Deltas of it that were accepted", None, |w| {
            Some(w.replica?.accepted as f64)
        })?;
        self.each(out, "refused_deltas", "Deltas of it that were refused", None, |w| {
            Some(w.replica?.refused as f64)
        })?;
        self.each(out, "missed_rounds", "Rounds that ended without its delta", None, |w| {
            Some(w.replica?.missed as f64)
        })
    }

    fn workers(&self, out: &mut DescriptorEncoder<'_>) -> Written {
        let seconds: [OfWorker; 9] = [
            ("forward", "Forward passes of the last step", |w| Some(w.timings.forward)),
            ("backward", "Backward passes of the last step", |w| Some(w.timings.backward)),
            ("send", "Encoding and handing over frames in the last step", |w| Some(w.timings.send)),
            ("receive", "Decoding frames in the last step", |w| Some(w.timings.receive)),
            ("wait", "Waiting for messages in the last step", |w| Some(w.timings.wait)),
            ("optimizer", "Gradient norm and AdamW update of the last step", |w| Some(w.timings.optimizer)),
            ("round_trip", "Round trip of the last ping", |w| w.rtt_ms.map(|ms| ms / 1e3)),
            ("layer", "Forward and backward of one layer, as measured on joining", |w| Some(w.layer_seconds)),
            ("silent", "Since anything was heard from it", |w| Some(w.silent_seconds)),
        ];
        for (name, help, value) in seconds {
            self.each(out, name, help, Some(&Unit::Seconds), value)?;
        }
        let bytes: [OfWorker; 3] = [
            ("memory", "What its program holds", |w| known(w.status.memory_bytes)),
            ("memory_limit", "What its stage may take", |w| known(w.memory_bytes)),
            ("stage_memory", "What its stage takes by the plan", |w| known(w.stage_bytes)),
        ];
        for (name, help, value) in bytes {
            self.each(out, name, help, Some(&Unit::Bytes), value)?;
        }
        let rate = Unit::Other("bytes_per_second".into());
        self.each(out, "link_up", "Way to the coordinator", Some(&rate), |w| w.link.map(|l| l.up))?;
        self.each(out, "link_down", "Way from the coordinator", Some(&rate), |w| w.link.map(|l| l.down))?;
        self.each(
            out,
            "pace",
            "How many times as long its steps take as measured",
            Some(&unit_of_ratios()),
            |w| Some(w.pace),
        )?;
        self.each(
            out,
            "pressure",
            "Compute pressure: 0 nominal, 1 fair, 2 serious, 3 critical",
            None,
            |w| {
                w.status.pressure.map(|pressure| match pressure {
                    Pressure::Nominal => 0.0,
                    Pressure::Fair => 1.0,
                    Pressure::Serious => 2.0,
                    Pressure::Critical => 3.0,
                })
            },
        )?;
        self.each(out, "accepted_micro_batches", "Micro-batches of finished steps", None, |w| {
            Some(w.accepted_micro_batches as f64)
        })
    }

    /// A gauge with a series per worker that has the value.
    fn each(
        &self,
        out: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl Fn(&WorkerView) -> Option<f64>,
    ) -> Written {
        let sample = ConstGauge::new(0.0f64);
        let name = format!("cohort_worker_{name}");
        let mut family = out.encode_descriptor(&name, help, unit, sample.metric_type())?;
        for worker in &self.view.workers {
            if let Some(value) = value(worker) {
                let id = worker.id.to_string();
                let labels = [("worker", id.as_str()), ("name", worker.name.as_str())];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// In the singular, as Prometheus' own names have it.
fn unit_of_ratios() -> Unit {
    Unit::Other("ratio".into())
}

fn known(bytes: u64) -> Option<f64> {
    (bytes > 0).then_some(bytes as f64)
}
