//! A discrete-event model of one pipeline step: 1F1B stages, and frames relayed over each worker's own link.
//!
//! A frame leaves on its sender's way up when that is free, takes `bytes / up` seconds, travels half a round trip,
//! waits until the receiver's way down is free, takes `bytes / down` seconds and half a round trip more. Computing
//! and sending overlap. Nothing else is modelled, so this is what a plan can reach at best.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeSet, BinaryHeap},
};

/// One hop of the plan, in the order of an activation's way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HopModel {
    /// Index of the worker that holds it.
    pub worker: usize,
    /// Seconds of the forward pass of one micro-batch. The last hop computes loss and backward in one: both count, at
    /// once.
    pub forward: f64,
    /// Seconds of its backward pass.
    pub backward: f64,
}

/// A worker's link; unmeasured ones are infinitely fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkModel {
    /// Seconds there and back.
    pub round_trip: f64,
    /// Bytes per second to the coordinator.
    pub up: f64,
    /// Bytes per second from the coordinator.
    pub down: f64,
}

impl LinkModel {
    /// A link that costs no time.
    pub const INSTANT: LinkModel = LinkModel { round_trip: 0.0, up: f64::INFINITY, down: f64::INFINITY };
}

/// A plan in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// From the embedding to the head.
    pub hops: Vec<HopModel>,
    /// One a worker.
    pub links: Vec<LinkModel>,
    /// Most micro-batches between forward and backward, one a worker.
    pub windows: Vec<u32>,
    /// M.
    pub micro_batches: u32,
    /// Bytes of an activation or gradient on the wire.
    pub frame_bytes: f64,
}

/// What one step comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// From the first token to the last worker's update.
    pub step_seconds: f64,
    /// Seconds each worker computes.
    pub busy: Vec<f64>,
}

impl Simulated {
    /// Computing time of all workers over workers times step time.
    pub fn efficiency(&self) -> f64 {
        self.busy.iter().sum::<f64>() / (self.busy.len() as f64 * self.step_seconds)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Forward,
    Backward,
}

/// A task that a hop does for a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    hop: usize,
    kind: Kind,
    micro_batch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Computed(Task),
    /// The frame for a task has reached the coordinator.
    AtCoordinator(Task),
    Arrived(Task),
}

/// Seconds, ordered.
#[derive(Debug, Clone, Copy, PartialEq)]
struct At(f64);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

struct Simulation<'a> {
    model: &'a Model,
    events: BinaryHeap<Reverse<(At, u64, Event)>>,
    number: u64,
    up_free: Vec<f64>,
    down_free: Vec<f64>,
    computing: Vec<bool>,
    ready: Vec<BTreeSet<Task>>,
    /// Micro-batches between forward and backward, per hop.
    open: Vec<u32>,
    busy: Vec<f64>,
}

/// Play one step.
pub fn simulate(model: &Model) -> Simulated {
    let workers = model.links.len();
    let mut simulation = Simulation {
        model,
        events: BinaryHeap::new(),
        number: 0,
        up_free: vec![0.0; workers],
        down_free: vec![0.0; workers],
        computing: vec![false; workers],
        ready: vec![BTreeSet::new(); workers],
        open: vec![0; model.hops.len()],
        busy: vec![0.0; workers],
    };
    let Some(first) = model.hops.first() else { return Simulated { step_seconds: 0.0, busy: vec![] } };
    // Tokens are few: they take the way's time only.
    for micro_batch in 0..model.micro_batches {
        let task = Task { hop: 0, kind: Kind::Forward, micro_batch };
        simulation.push(model.links[first.worker].round_trip / 2.0, Event::Arrived(task));
    }
    let mut last = 0.0;
    while let Some(Reverse((At(now), _, event))) = simulation.events.pop() {
        last = now;
        simulation.happen(now, event);
    }
    // The last report goes up and the word to update comes down.
    let farthest = model.links.iter().map(|l| l.round_trip).fold(0.0, f64::max);
    Simulated { step_seconds: last + farthest, busy: simulation.busy }
}

impl Simulation<'_> {
    fn push(&mut self, at: f64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((At(at), self.number, event)));
    }

    fn happen(&mut self, now: f64, event: Event) {
        match event {
            Event::Arrived(task) => {
                let worker = self.model.hops[task.hop].worker;
                self.ready[worker].insert(task);
                self.begin(now, worker);
            }
            Event::AtCoordinator(task) => {
                let worker = self.model.hops[task.hop].worker;
                let link = self.model.links[worker];
                let done = self.down_free[worker].max(now) + self.model.frame_bytes / link.down;
                self.down_free[worker] = done;
                self.push(done + link.round_trip / 2.0, Event::Arrived(task));
            }
            Event::Computed(task) => {
                let worker = self.model.hops[task.hop].worker;
                self.computing[worker] = false;
                if let Some(next) = self.follows(task) {
                    let link = self.model.links[worker];
                    let sent = self.up_free[worker].max(now) + self.model.frame_bytes / link.up;
                    self.up_free[worker] = sent;
                    self.push(sent + link.round_trip / 2.0, Event::AtCoordinator(next));
                }
                self.begin(now, worker);
            }
        }
    }

    fn is_last(&self, hop: usize) -> bool {
        hop + 1 == self.model.hops.len()
    }

    /// What a task's result makes possible elsewhere.
    fn follows(&self, task: Task) -> Option<Task> {
        match task.kind {
            Kind::Forward if !self.is_last(task.hop) => Some(Task { hop: task.hop + 1, ..task }),
            _ => task.hop.checked_sub(1).map(|hop| Task { hop, kind: Kind::Backward, ..task }),
        }
    }

    /// Let an idle worker take its next task: backward first, then the loss, then forward while its window has
    /// room, as the session's schedule does.
    fn begin(&mut self, now: f64, worker: usize) {
        if self.computing[worker] {
            return;
        }
        let rank = |task: &Task| match task.kind {
            Kind::Backward => (0, Reverse(task.hop), task.micro_batch),
            Kind::Forward if self.is_last(task.hop) => (1, Reverse(task.hop), task.micro_batch),
            Kind::Forward => (2, Reverse(task.hop), task.micro_batch),
        };
        let window = self.model.windows[worker];
        let may = |task: &&Task| {
            task.kind == Kind::Backward || self.is_last(task.hop) || self.open[task.hop] < window
        };
        let Some(task) = self.ready[worker].iter().filter(may).min_by_key(|task| rank(task)).copied() else {
            return;
        };
        self.ready[worker].remove(&task);
        let HopModel { forward, backward, .. } = self.model.hops[task.hop];
        let seconds = match task.kind {
            Kind::Forward if self.is_last(task.hop) => forward + backward,
            Kind::Forward => {
                self.open[task.hop] += 1;
                forward
            }
            Kind::Backward => {
                self.open[task.hop] -= 1;
                backward
            }
        };
        self.computing[worker] = true;
        self.busy[worker] += seconds;
        self.push(now + seconds, Event::Computed(task));
    }
}

/// A packet that is lost comes this many round trips later, about: that long the others should have work.
const LATE: f64 = 4.0;

/// The least windows with which the step is within a hundredth of what unlimited ones give, and some more so that a
/// late frame does not stop everybody; at least as many as there are hops from a worker's first one to the loss
/// (1F1B), at most M.
pub fn windows(model: &Model) -> Vec<u32> {
    let least: Vec<u32> = (0..model.links.len())
        .map(|worker| {
            let first = model.hops.iter().position(|hop| hop.worker == worker).unwrap_or(0);
            (model.hops.len() - first) as u32
        })
        .collect();
    let m = model.micro_batches;
    let with = |extra: u32| -> Vec<u32> { least.iter().map(|w| (w + extra).min(m).max(1)).collect() };
    let time = |windows: Vec<u32>| simulate(&Model { windows, ..model.clone() }).step_seconds;
    let best = time(with(m));
    // Wider windows never take longer, but for ties in the order of events: bisection finds one that is near.
    let (mut low, mut high) = (0, m);
    while low < high {
        let middle = low + (high - low) / 2;
        if time(with(middle)) <= 1.01 * best { high = middle } else { low = middle + 1 }
    }
    let work = |worker| -> f64 {
        model.hops.iter().filter(|hop| hop.worker == worker).map(|hop| hop.forward + hop.backward).sum()
    };
    let slowest = (0..model.links.len()).map(work).fold(0.0, f64::max);
    let farthest = model.links.iter().map(|link| link.round_trip).fold(0.0, f64::max);
    let slack = if slowest > 0.0 { (LATE * farthest / slowest).ceil().min(f64::from(m)) as u32 } else { 0 };
    with((high + slack).min(m))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(stages: usize, micro_batches: u32, link: LinkModel) -> Model {
        let hop = |worker| HopModel { worker, forward: 1.0, backward: 2.0 };
        let mut model = Model {
            hops: (0..stages).map(hop).collect(),
            links: vec![link; stages],
            windows: vec![0; stages],
            micro_batches,
            frame_bytes: 1e6,
        };
        model.windows = windows(&model);
        model
    }

    #[test]
    fn without_links_the_bubble_is_the_textbook_one() {
        for (stages, m) in [(1, 4), (2, 2), (4, 4), (4, 16), (3, 9)] {
            let model = even(stages, m, LinkModel::INSTANT);
            // 1F1B: (M + S - 1) (forward + backward).
            let expected = (f64::from(m) + stages as f64 - 1.0) * 3.0;
            let simulated = simulate(&model);
            assert!((simulated.step_seconds - expected).abs() < 1e-9, "{stages} stages, {m} micro-batches");
            let efficiency = f64::from(m) / (f64::from(m) + stages as f64 - 1.0);
            assert!((simulated.efficiency() - efficiency).abs() < 1e-9);
        }
    }

    #[test]
    fn the_window_bounds_what_is_open_and_starves_a_far_pipeline() {
        let far = LinkModel { round_trip: 1.0, up: f64::INFINITY, down: f64::INFINITY };
        let model = even(4, 32, far);
        let narrow = simulate(&Model { windows: vec![4, 3, 2, 1], ..model.clone() });
        let wide = simulate(&model);
        assert!(model.windows[0] > 4, "{:?}", model.windows);
        assert!(wide.step_seconds < 0.8 * narrow.step_seconds, "{wide:?} {narrow:?}");
        let unlimited = simulate(&Model { windows: vec![32; 4], ..model.clone() });
        assert!(wide.step_seconds <= 1.01 * unlimited.step_seconds);
    }

    #[test]
    fn a_slow_link_sets_the_pace() {
        // Ten seconds a frame; a middle stage sends two a micro-batch.
        let slow = LinkModel { round_trip: 0.0, up: 1e5, down: f64::INFINITY };
        let simulated = simulate(&even(3, 8, slow));
        assert!(simulated.step_seconds >= 8.0 * 20.0, "{simulated:?}");
    }

    #[test]
    fn a_worker_with_two_hops_does_both() {
        let model = Model {
            hops: vec![
                HopModel { worker: 0, forward: 1.0, backward: 2.0 },
                HopModel { worker: 1, forward: 1.0, backward: 2.0 },
                HopModel { worker: 0, forward: 0.5, backward: 0.5 },
            ],
            links: vec![LinkModel::INSTANT; 2],
            windows: vec![3, 2],
            micro_batches: 4,
            frame_bytes: 1.0,
        };
        let simulated = simulate(&model);
        assert_eq!(simulated.busy, [16.0, 12.0]);
        assert!(simulated.step_seconds >= 16.0);
    }
}
