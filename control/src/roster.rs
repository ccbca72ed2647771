//! The workers that are connected, and what is known of each.

use std::{collections::BTreeMap, time::Duration};

use protocol::{
    message::{Hello, PassSeconds, Profile, Timings, Vitals},
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
    /// Steps take this many times as long as the profile promises.
    pub pace: f64,
    /// When it was last asked to measure itself.
    pub benchmarked: Duration,
    pub timings: Timings,
    pub vitals: Vitals,
    pub accepted_micro_batches: u64,
}

/// Weight of the newest step in a worker's pace.
const PACE_WEIGHT: f64 = 0.4;

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
            pace: 1.0,
            benchmarked: now,
            timings: Timings::default(),
            vitals: Vitals::default(),
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
                let now = |promised: PassSeconds| PassSeconds {
                    forward: promised.forward * w.pace,
                    backward: promised.backward * w.pace,
                };
                Some(Measured {
                    worker: *id,
                    layer: now(p.layer),
                    embedding: now(p.embedding),
                    head_seconds: p.head_seconds * w.pace,
                    memory_bytes: p.memory_bytes,
                    link: p.link,
                })
            })
            .collect()
    }

    /// How many times as long everybody's steps take as promised.
    pub fn paces(&self) -> BTreeMap<WorkerId, f64> {
        self.workers.iter().map(|(id, w)| (*id, w.pace)).collect()
    }

    /// Note what a step of training took a worker, where `expected` seconds of computing would be as measured.
    pub fn timed(&mut self, id: WorkerId, timings: Timings, expected: f64) {
        let Some(w) = self.workers.get_mut(&id) else { return };
        // Measured with the pace so far: what is left is the correction of it.
        let correction = (timings.forward + timings.backward) / expected;
        if correction.is_finite() && correction > 0.0 {
            w.pace *= correction.powf(PACE_WEIGHT);
        }
    }

    /// Workers last asked to measure themselves longer ago than `after`.
    pub fn to_measure_again(&self, now: Duration, after: Duration) -> Vec<WorkerId> {
        let due = |w: &Worker| w.profile.is_some() && now.saturating_sub(w.benchmarked) > after;
        self.workers.iter().filter(|(_, w)| due(w)).map(|(id, _)| *id).collect()
    }

    /// Workers not heard from for longer than `lease`.
    pub fn silent(&self, now: Duration, lease: Duration) -> Vec<WorkerId> {
        let late = |w: &Worker| now.saturating_sub(w.last_heard) > lease;
        self.workers.iter().filter(|(_, w)| late(w)).map(|(id, _)| *id).collect()
    }

    /// What the pages show; `holding` tells a worker's state, hops and bytes in the plan.
    pub fn views(
        &self,
        now: Duration,
        holding: impl Fn(WorkerId) -> (WorkerState, Vec<Hop>, u64),
    ) -> Vec<WorkerView> {
        self.workers
            .iter()
            .map(|(id, w)| {
                let (state, hops, stage_bytes) = match &w.profile {
                    None => (WorkerState::Benchmarking, vec![], 0),
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
                    layer_seconds: profile.map_or(0.0, |p| p.layer.total()),
                    pace: w.pace,
                    link: profile.and_then(|p| p.link),
                    stage_bytes,
                    vitals: w.vitals,
                    memory_bytes: profile.map_or(0, |p| p.memory_bytes),
                    hops,
                    timings: w.timings,
                    accepted_micro_batches: w.accepted_micro_batches,
                    replica: None,
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
    positive("layer.forward", profile.layer.forward)?;
    positive("layer.backward", profile.layer.backward)?;
    positive("embedding.forward", profile.embedding.forward)?;
    positive("embedding.backward", profile.embedding.backward)?;
    positive("head_seconds", profile.head_seconds)?;
    let Some(link) = profile.link else { return Ok(()) };
    let sound = |value: f64| value.is_finite() && value >= 0.0;
    if sound(link.round_trip_seconds)
        && [link.up, link.down].iter().all(|rate| rate.is_finite() && *rate > 0.0)
    {
        Ok(())
    } else {
        Err(Refusal::BadProfile {
            detail: "link must have a round trip of at least 0 s and positive finite rates; leave it out if it was \
                     not measured"
                .into(),
        })
    }
}
