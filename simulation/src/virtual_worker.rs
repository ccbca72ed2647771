//! A virtual worker: what it is, and how long it computes.

use std::{cell::Cell, rc::Rc};

use protocol::{
    message::{PassSeconds, Profile},
    spec::{Backend, Part},
};
use worker::platform::Compute;

use crate::network::Link;

/// What a virtual worker is.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSpec {
    /// For people.
    pub name: String,
    /// Its link.
    pub link: Link,
    /// What it says of its device, and how long a pass of pipeline mode takes it.
    pub profile: Profile,
    /// Seconds of a local step of block mode.
    pub local_step: f64,
    /// Seconds of a pass of an evaluation of block mode.
    pub evaluation_pass: f64,
}

impl WorkerSpec {
    /// A worker on whose device a layer takes so many seconds both ways on one micro-batch, the embedding as long and
    /// the head half as long again; a local step takes as long as `layers` of that, with both.
    pub fn of_layer_seconds(name: &str, link: Link, layer: f64, layers: u32) -> Self {
        let pass = PassSeconds { forward: layer / 3.0, backward: layer * 2.0 / 3.0 };
        let profile = profile(pass, pass, 1.5 * layer);
        let local_step = f64::from(layers) * layer + layer + profile.head_seconds;
        let evaluation_pass = local_step / 3.0;
        Self { name: name.into(), link, profile, local_step, evaluation_pass }
    }

    /// A worker on whose device a local step of blocks of so many layers takes so many seconds: a third each in the
    /// layers, the table and the head.
    pub fn of_step_seconds(name: &str, link: Link, step: f64, layers_per_block: u32) -> Self {
        let third = PassSeconds { forward: step / 9.0, backward: step * 2.0 / 9.0 };
        let layers = f64::from(layers_per_block.max(1));
        let layer = PassSeconds { forward: third.forward / layers, backward: third.backward / layers };
        let profile = profile(layer, third, step / 3.0);
        Self { name: name.into(), link, profile, local_step: step, evaluation_pass: step / 3.0 }
    }
}

fn profile(layer: PassSeconds, embedding: PassSeconds, head_seconds: f64) -> Profile {
    let device = "a virtual device".into();
    Profile {
        backend: Backend::Cpu,
        device,
        threads: 1,
        memory_bytes: 0,
        layer,
        embedding,
        head_seconds,
        link: None,
    }
}

/// How long a worker computes.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    pub(crate) spec: WorkerSpec,
    /// Everything takes so many times as long at the moment.
    slower: Rc<Cell<f64>>,
}

impl Pace {
    pub(crate) fn new(spec: WorkerSpec) -> Self {
        Self { spec, slower: Rc::new(Cell::new(1.0)) }
    }

    pub(crate) fn slow_down(&self, factor: f64) {
        self.slower.set(factor);
    }

    /// Seconds of a unit of computing.
    pub(crate) fn seconds(&self, work: Compute<'_>) -> f64 {
        let Profile { layer, embedding, head_seconds, .. } = &self.spec.profile;
        let pass = |part: &Part, pass: fn(&PassSeconds) -> f64| {
            let layers = f64::from(part.end_layer.saturating_sub(part.first_layer));
            layers * pass(layer) + if part.embedding { pass(embedding) } else { 0.0 }
        };
        let forward = |part: &Part| pass(part, |seconds| seconds.forward);
        let backward = |part: &Part| pass(part, |seconds| seconds.backward);
        let usual = match work {
            Compute::Forward(part) => forward(part) + if part.head { head_seconds / 3.0 } else { 0.0 },
            Compute::Backward(part) => backward(part),
            Compute::Loss(part) => forward(part) + backward(part) + head_seconds,
            // A pass over the numbers, beside which the products of all micro-batches are long.
            Compute::Update => 0.0,
            Compute::LocalStep => self.spec.local_step,
            Compute::EvaluationPass => self.spec.evaluation_pass,
        };
        usual * self.slower.get()
    }
}
