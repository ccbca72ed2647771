//! The workers that are connected, and what is known of each.

use std::{collections::BTreeMap, time::Duration};

use protocol::{
    message::{Hello, Profile, Timings},
    refusal::Refusal,
    spec::Hop,
    view::{WorkerState, WorkerView},
};

use super::event::WorkerId;
use crate::plan::Measured;

#[derive(Debug, Clone)]
pub struct Worker {
    hello: Hello,
    pub profile: Option<Profile>,
    pub last_heard: Duration,
    pub rtt: Option<Duration>,
    pub timings: Timings,
    pub accepted_micro_batches: u64,
}

/// Connected workers by number, which is the order of joining.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    workers: BTreeMap<WorkerId, Worker>,
}

impl Roster {
    pub fn join(&mut self, id: WorkerId, hello: Hello, now: Duration) {
        let worker = Worker {
            hello,
            profile: None,
            last_heard: now,
            rtt: None,
            timings: Timings::default(),
            accepted_micro_batches: 0,
        };
        self.workers.insert(id, worker);
    }

    pub fn leave(&mut self, id: WorkerId) -> bool {
        self.workers.remove(&id).is_some()
    }

    pub fn get_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(&id)
    }

    pub fn contains(&self, id: WorkerId) -> bool {
        self.workers.contains_key(&id)
    }

    pub fn len(&self) -> usize {
        self.workers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    pub fn ids(&self) -> Vec<WorkerId> {
        self.workers.keys().copied().collect()
    }

    /// Workers that have measured themselves, in the order of joining.
    pub fn measured(&self) -> Vec<Measured> {
        self.workers
            .iter()
            .filter_map(|(id, w)| {
                let p = w.profile.as_ref()?;
                Some(Measured {
                    worker: *id,
                    layer_seconds: p.layer_seconds,
                    embedding_seconds: p.embedding_seconds,
                    head_seconds: p.head_seconds,
                    memory_bytes: p.memory_bytes,
                })
            })
            .collect()
    }

    /// Workers not heard from for longer than `lease`.
    pub fn silent(&self, now: Duration, lease: Duration) -> Vec<WorkerId> {
        let late = |w: &Worker| now.saturating_sub(w.last_heard) > lease;
        self.workers.iter().filter(|(_, w)| late(w)).map(|(id, _)| *id).collect()
    }

    /// What the pages show; `holding` tells a worker's state and hops in the plan.
    pub fn views(
        &self,
        now: Duration,
        holding: impl Fn(WorkerId) -> (WorkerState, Vec<Hop>),
    ) -> Vec<WorkerView> {
        self.workers
            .iter()
            .map(|(id, w)| {
                let (state, hops) = match &w.profile {
                    None => (WorkerState::Benchmarking, vec![]),
                    Some(_) => holding(*id),
                };
                let profile = w.profile.as_ref();
                WorkerView {
                    id: id.0,
                    name: w.hello.name.clone(),
                    kind: w.hello.kind,
                    state,
                    backend: profile.map(|p| p.backend),
                    device: profile.map(|p| p.device.clone()).unwrap_or_default(),
                    layer_seconds: profile.map_or(0.0, |p| p.layer_seconds),
                    memory_bytes: profile.map_or(0, |p| p.memory_bytes),
                    hops,
                    timings: w.timings,
                    accepted_micro_batches: w.accepted_micro_batches,
                    rtt_ms: w.rtt.map(|r| r.as_secs_f64() * 1e3),
                    silent_seconds: now.saturating_sub(w.last_heard).as_secs_f64(),
                }
            })
            .collect()
    }
}

/// A profile must be usable as a divisor: positive finite times, texts of bounded length.
pub fn check_profile(profile: &Profile) -> Result<(), Refusal> {
    let positive = |name: &str, value: f64| {
        if value.is_finite() && value > 0.0 {
            Ok(())
        } else {
            Err(Refusal::BadProfile {
                detail: format!("{name} is {value}, it must be a positive number of seconds"),
            })
        }
    };
    positive("layer_seconds", profile.layer_seconds)?;
    positive("embedding_seconds", profile.embedding_seconds)?;
    positive("head_seconds", profile.head_seconds)
}
