//! The workers that are connected, and what is known of each.

use std::{collections::BTreeMap, time::Duration};

use protocol::{
    message::{DeviceStatus, Hello, PassSeconds, Profile, Timings},
    refusal::Refusal,
    spec::Hop,
    view::{WorkerState, WorkerView},
    worker_id::WorkerId,
};

use crate::pipeline::plan::Measured;

/// What is known of a connected worker.
#[derive(Debug, Clone)]
pub struct Worker {
    hello: Hello,
    /// None until it has measured itself.
    profile: Option<Profile>,
    last_heard: Duration,
    round_trip: Option<Duration>,
    /// Steps take this many times as long as the profile promises.
    pub pace: f64,
    /// When it was last asked to measure itself.
    benchmarked: Duration,
    /// Profiles that it was asked for and has not sent.
    profiles_asked: u32,
    /// Where its time went in its last step or round.
    pub timings: Timings,
    /// As of its last step or round.
    pub status: DeviceStatus,
    /// Micro-batches of finished steps it took part in.
    pub accepted_micro_batches: u64,
    /// Faults that counted against it, less those it has been forgiven.
    faults: u32,
    /// Faults of which it held no part.
    unfounded: u32,
}

/// How long a worker is given no work after its first fault; twice as long after each further one.
const SUSPENSION: Duration = Duration::from_secs(10);
/// Longest suspension.
const LONGEST_SUSPENSION: Duration = Duration::from_mins(10);
/// A worker that sends so many faults or deltas without holding a part is turned away.
const MOST_UNFOUNDED: u32 = 3;
/// A worker's claim of its speed counts only up to this many times the median of the others'.
const FASTER_THAN_PEERS: f64 = 50.0;

/// Weight of the newest step in a worker's pace.
const PACE_WEIGHT: f64 = 0.4;
/// A pace is between this and its inverse, whatever a worker says of its steps.
const SLOWEST_PACE: f64 = 1e4;

/// Connected workers by number, which is the order of joining.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    workers: BTreeMap<WorkerId, Worker>,
    /// How many have measured themselves: while a run waits this is asked at every event, and there may be thousands.
    profiled: usize,
    /// Until when those that had a fault are given no work.
    suspended_until: BTreeMap<WorkerId, Duration>,
}

/// A worker of this profile whose passes take `factor` times as long as it promises.
fn measured(worker: WorkerId, profile: &Profile, factor: f64) -> Measured {
    let scaled = |promised: PassSeconds| PassSeconds {
        forward: promised.forward * factor,
        backward: promised.backward * factor,
    };
    Measured {
        worker,
        layer: scaled(profile.layer),
        embedding: scaled(profile.embedding),
        head_seconds: profile.head_seconds * factor,
        memory_bytes: profile.memory_bytes,
        link: profile.link,
    }
}

impl Worker {
    /// What it has measured of itself; None until it has.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }
}

impl Roster {
    /// Adds a worker.
    pub fn join(&mut self, id: WorkerId, hello: Hello, now: Duration) {
        let worker = Worker {
            hello,
            profile: None,
            last_heard: now,
            round_trip: None,
            pace: 1.0,
            benchmarked: now,
            profiles_asked: 1,
            timings: Timings::default(),
            status: DeviceStatus::default(),
            accepted_micro_batches: 0,
            faults: 0,
            unfounded: 0,
        };
        self.workers.insert(id, worker);
    }

    /// Something came from the worker.
    pub fn heard(&mut self, id: WorkerId, now: Duration) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.last_heard = now;
        }
    }

    /// A ping came back.
    pub fn pinged(&mut self, id: WorkerId, round_trip: Duration) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.round_trip = Some(round_trip);
        }
    }

    /// The worker is asked to measure itself, as it is once on joining.
    pub fn asked_to_measure(&mut self, id: WorkerId, now: Duration) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.benchmarked = now;
            worker.profiles_asked = worker.profiles_asked.saturating_add(1);
        }
    }

    /// Takes note that a profile has come; whether it was asked for. One that may say again and again what it is could
    /// have the model dealt anew all the time.
    pub fn expects_profile(&mut self, id: WorkerId) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else { return false };
        let asked = worker.profiles_asked > 0;
        worker.profiles_asked = worker.profiles_asked.saturating_sub(1);
        asked
    }

    /// The worker has measured itself.
    pub fn profiled(&mut self, id: WorkerId, profile: Profile) {
        if let Some(worker) = self.workers.get_mut(&id) {
            self.profiled += usize::from(worker.profile.is_none());
            worker.profile = Some(profile);
            worker.pace = 1.0;
        }
    }

    /// The coordinator stood still for so long: nobody's silence in that time counts.
    pub fn forgive(&mut self, time: Duration) {
        for worker in self.workers.values_mut() {
            worker.last_heard = worker.last_heard.saturating_add(time);
        }
    }

    /// Gives a worker no work for a while, longer with each further fault.
    pub fn suspend(&mut self, id: WorkerId, now: Duration) {
        if let Some(worker) = self.workers.get_mut(&id) {
            let length = SUSPENSION.saturating_mul(1 << worker.faults.min(16)).min(LONGEST_SUSPENSION);
            worker.faults = worker.faults.saturating_add(1);
            self.suspended_until.retain(|_, until| *until > now);
            self.suspended_until.insert(id, now.saturating_add(length));
        }
    }

    /// Forgives a fault of workers that have done what they should.
    pub fn trust(&mut self, ids: impl IntoIterator<Item = WorkerId>) {
        for id in ids {
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.faults = worker.faults.saturating_sub(1);
            }
        }
    }

    /// Whether a worker is given no work at the moment.
    pub fn is_suspended(&self, id: WorkerId, now: Duration) -> bool {
        self.suspended_until.get(&id).is_some_and(|until| *until > now)
    }

    /// Workers that are given no work at the moment.
    pub fn suspended(&self, now: Duration) -> usize {
        self.suspended_until.values().filter(|until| **until > now).count()
    }

    /// When the next suspension ends.
    pub fn next_return(&self, now: Duration) -> Option<Duration> {
        self.suspended_until.values().filter(|until| **until > now).min().copied()
    }

    /// Notes a fault or a delta of a worker that holds nothing of which it could be.
    ///
    /// # Errors
    /// The refusal with which it is turned away, after a few.
    pub fn unfounded(&mut self, id: WorkerId, message: &str, detail: String) -> Result<(), Refusal> {
        let Some(worker) = self.workers.get_mut(&id) else { return Ok(()) };
        worker.unfounded = worker.unfounded.saturating_add(1);
        if worker.unfounded < MOST_UNFOUNDED {
            return Ok(());
        }
        Err(Refusal::Unexpected { message: message.into(), detail })
    }

    /// Removes a worker; whether it was there.
    pub fn leave(&mut self, id: WorkerId) -> bool {
        self.suspended_until.remove(&id);
        let Some(worker) = self.workers.remove(&id) else { return false };
        self.profiled -= usize::from(worker.profile.is_some());
        true
    }

    /// A worker.
    pub fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(&id)
    }

    /// A worker, to be changed.
    pub fn get_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(&id)
    }

    /// Whether a worker is there.
    pub fn contains(&self, id: WorkerId) -> bool {
        self.workers.contains_key(&id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// All, in the order of joining.
    pub fn ids(&self) -> Vec<WorkerId> {
        self.workers.keys().copied().collect()
    }

    /// Workers that have measured themselves and are not suspended, in the order of joining, as their last steps were.
    /// Nobody counts as more than [`FASTER_THAN_PEERS`] times as fast as the median of all.
    pub fn measured(&self, now: Duration) -> Vec<Measured> {
        let mut layers: Vec<f64> = self
            .workers
            .values()
            .filter_map(|worker| Some(worker.profile.as_ref()?.layer.total() * worker.pace))
            .collect();
        layers.sort_by(f64::total_cmp);
        let least = layers.get(layers.len() / 2).map_or(0.0, |median| median / FASTER_THAN_PEERS);
        self.workers
            .iter()
            .filter(|(id, _)| !self.is_suspended(**id, now))
            .filter_map(|(id, worker)| {
                let profile = worker.profile.as_ref()?;
                let bound = (least / (profile.layer.total() * worker.pace)).max(1.0);
                Some(measured(*id, profile, worker.pace * bound))
            })
            .collect()
    }

    /// How many have measured themselves, suspended or not.
    pub fn profiled_count(&self) -> usize {
        self.profiled
    }

    /// How many have measured themselves and are not suspended: as many as [`Self::measured`] gives.
    pub fn ready_count(&self, now: Duration) -> usize {
        let profiled = |id| self.workers.get(id).is_some_and(|worker: &Worker| worker.profile.is_some());
        let suspended =
            self.suspended_until.iter().filter(|(id, until)| **until > now && profiled(id)).count();
        self.profiled - suspended
    }

    /// How many times as long everybody's steps take as promised.
    pub fn paces(&self) -> BTreeMap<WorkerId, f64> {
        self.workers.iter().map(|(id, w)| (*id, w.pace)).collect()
    }

    /// Note what a step of training took a worker: so many micro-batches of these hops.
    pub fn timed(&mut self, id: WorkerId, timings: Timings, hops: &[Hop], micro_batches: u32) {
        let Some(w) = self.workers.get_mut(&id) else { return };
        let Some(profile) = &w.profile else { return };
        // As the worker itself promised: the bound that its peers set is for plans. With the pace so far, what is left
        // is the correction of it.
        let expected = f64::from(micro_batches) * measured(id, profile, w.pace).seconds(hops);
        let correction = (timings.forward + timings.backward) / expected;
        if correction.is_finite() && correction > 0.0 {
            w.pace = (w.pace * correction.powf(PACE_WEIGHT)).clamp(1.0 / SLOWEST_PACE, SLOWEST_PACE);
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
                    status: w.status,
                    memory_bytes: profile.map_or(0, |p| p.memory_bytes),
                    hops,
                    timings: w.timings,
                    accepted_micro_batches: w.accepted_micro_batches,
                    replica: None,
                    rtt_ms: w.round_trip.map(|r| r.as_secs_f64() * 1e3),
                    silent_seconds: now.saturating_sub(w.last_heard).as_secs_f64(),
                }
            })
            .collect()
    }
}
