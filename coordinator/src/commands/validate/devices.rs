//! Devices as somebody describes them who has not measured them yet.

use std::path::{Path, PathBuf};

use control::pipeline::plan::Measured;
use protocol::{
    message::{LinkSpeed, PassSeconds},
    spec::RunSpec,
    worker_id::WorkerId,
};
use serde::Deserialize;

/// Backward passes compute twice what forward passes do: the gradient of the input and that of the weights.
const BACKWARD: f64 = 2.0;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DevicesError {
    #[error("{path} cannot be read ({source}); give the path of a list of devices")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} is no list of devices: {detail}")]
    Toml { path: PathBuf, detail: String },
    #[error("{path}: there is no device in it; write [[device]] with gflops = 50")]
    Empty { path: PathBuf },
    #[error("{path}: {field} of device {number} is {value}; it must be above 0")]
    NotPositive { path: PathBuf, number: usize, field: &'static str, value: f64 },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<Device>,
}

/// One `[[device]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Device {
    #[serde(default = "nameless")]
    pub name: String,
    /// Billions of floating-point operations a second that it sustains in training.
    pub gflops: f64,
    /// Megabytes its stage may take; left out: as much as it needs.
    #[serde(default)]
    pub memory_mb: Option<f64>,
    /// Left out: a link that costs nothing.
    #[serde(default)]
    pub up_mbit: Option<f64>,
    #[serde(default)]
    pub down_mbit: Option<f64>,
    #[serde(default)]
    pub round_trip_ms: Option<f64>,
}

fn nameless() -> String {
    "device".into()
}

/// Read a list of devices.
pub(crate) fn load(path: &Path) -> Result<Vec<Device>, DevicesError> {
    let name = || path.to_path_buf();
    let text = std::fs::read_to_string(path).map_err(|source| DevicesError::Read { path: name(), source })?;
    let file: File = toml::from_str(&text)
        .map_err(|e| DevicesError::Toml { path: name(), detail: e.to_string().trim().replace('\n', " ") })?;
    if file.device.is_empty() {
        return Err(DevicesError::Empty { path: name() });
    }
    for (index, device) in file.device.iter().enumerate() {
        let fields = [
            ("gflops", Some(device.gflops)),
            ("memory_mb", device.memory_mb),
            ("up_mbit", device.up_mbit),
            ("down_mbit", device.down_mbit),
        ];
        for (field, value) in fields {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                return Err(DevicesError::NotPositive { path: name(), number: index + 1, field, value });
            }
        }
    }
    Ok(file.device)
}

impl Device {
    /// What it would measure of itself on this run, from the operations that matrix products take:
    /// `2 (12 d^2 + 2 T d)` a token and layer, `2 d V` a token in the head.
    pub(crate) fn measured(&self, id: u64, run: &RunSpec) -> Measured {
        let model = &run.model;
        let [d, t, v] = [model.width, run.context, model.vocabulary].map(f64::from);
        let tokens = f64::from(run.sequences) * t;
        let seconds = |operations: f64| operations / (self.gflops * 1e9);
        let layer = seconds(tokens * 2.0 * (12.0 * d * d + 2.0 * t * d));
        // Looking rows up and adding them: a memory access per feature, counted as an operation.
        let embedding = seconds(tokens * 2.0 * d);
        let head = seconds(tokens * 2.0 * d * v) * (1.0 + BACKWARD);
        let both = |forward: f64| PassSeconds { forward, backward: forward * BACKWARD };
        let rate = |mbit: Option<f64>| mbit.map_or(f64::INFINITY, |mbit| mbit * 1e6 / 8.0);
        let has_link = self.up_mbit.is_some() || self.down_mbit.is_some() || self.round_trip_ms.is_some();
        Measured {
            worker: WorkerId(id),
            layer: both(layer),
            embedding: both(embedding),
            head_seconds: head,
            memory_bytes: self.memory_mb.map_or(0, |mb| (mb * 1e6) as u64),
            link: has_link.then(|| LinkSpeed {
                round_trip_seconds: self.round_trip_ms.unwrap_or(0.0) / 1e3,
                up: rate(self.up_mbit),
                down: rate(self.down_mbit),
            }),
        }
    }
}
