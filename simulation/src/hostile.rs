//! What hostile workers make of their deltas before they send them.

use std::collections::BTreeMap;

use engine::aggregation::norm;
use protocol::{
    delta::{self, DeltaEncoding, DeltaExpectation, DeltaHeader},
    message::{DeltaReady, RoundTask, Up},
    worker_id::WorkerId,
};

use crate::{
    chance,
    error::SimulationError,
    harness::{Desk, Runtime},
};

/// A copier sends this long after the one it copies, in seconds.
const COPIED_AFTER: f64 = 1e-3;

/// What a worker makes of its delta before it sends it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Behaviour {
    /// Nothing.
    #[default]
    Honest,
    /// Times minus this.
    SignFlip(f32),
    /// Normal numbers, together this many times as long as the honest delta.
    Noise(f64),
    /// Times this.
    Scale(f32),
    /// Nothing but zeros.
    Zeros,
    /// The first delta again and again, under a new header.
    Replay,
    /// The delta of an honest worker at the same block, a moment after that.
    Copy,
}

impl Behaviour {
    /// For people.
    pub fn name(&self) -> String {
        match self {
            Behaviour::Honest => "honest".into(),
            Behaviour::SignFlip(factor) => format!("sign flip x{factor}"),
            Behaviour::Noise(times) => format!("noise x{times}"),
            Behaviour::Scale(factor) => format!("scale x{factor}"),
            Behaviour::Zeros => "zeros".into(),
            Behaviour::Replay => "stale replay".into(),
            Behaviour::Copy => "copy".into(),
        }
    }

    /// Turns an honest delta into what is sent. `first` is the worker's first delta, `other` that of an honest
    /// colleague; without them it stays honest.
    fn apply(
        &self,
        delta: &mut [Vec<f32>],
        first: Option<&[Vec<f32>]>,
        other: Option<&[Vec<f32>]>,
        keys: [u64; 3],
    ) {
        let mut each = |f: &dyn Fn(f32) -> f32| delta.iter_mut().flatten().for_each(|x| *x = f(*x));
        match *self {
            Behaviour::Honest => {}
            Behaviour::SignFlip(factor) => each(&|x| -factor * x),
            Behaviour::Scale(factor) => each(&|x| factor * x),
            Behaviour::Zeros => each(&|_| 0.0),
            Behaviour::Noise(times) => {
                let flat = delta.concat();
                let deviation = times * norm(&flat) / (flat.len() as f64).sqrt();
                noise(delta, deviation, keys);
            }
            Behaviour::Replay | Behaviour::Copy => {
                let source = if *self == Behaviour::Replay { first } else { other };
                if let Some(source) = source {
                    delta.iter_mut().zip(source).for_each(|(mine, theirs)| mine.clone_from(theirs));
                }
            }
        }
    }
}

/// Normal numbers of this deviation.
fn noise(delta: &mut [Vec<f32>], deviation: f64, [a, b, c]: [u64; 3]) {
    for (counter, x) in (0..).zip(delta.iter_mut().flatten()) {
        *x = (deviation * chance::normal(&[a, b, c, counter])) as f32;
    }
}

/// Round and block: deltas of one key can stand for each other.
type Key = (u64, u32);

/// Who does what to its deltas, and what they need for it.
#[derive(Debug)]
pub(crate) struct Hostile {
    seed: u64,
    encoding: DeltaEncoding,
    behaviours: Vec<Behaviour>,
    /// The last task of each worker.
    tasks: BTreeMap<usize, RoundTask>,
    /// First deltas, for replays.
    firsts: BTreeMap<usize, Vec<Vec<f32>>>,
    /// Honest deltas that have come of the newest round, for copies.
    honest: BTreeMap<Key, Vec<Vec<f32>>>,
    /// Copiers that wait for one.
    waiting: Vec<(WorkerId, usize, DeltaReady)>,
}

impl Hostile {
    /// Behaviours by worker; those not named are honest.
    pub(crate) fn new(seed: u64, encoding: DeltaEncoding, behaviours: &[Behaviour]) -> Self {
        Self {
            seed,
            encoding,
            behaviours: behaviours.to_vec(),
            tasks: BTreeMap::new(),
            firsts: BTreeMap::new(),
            honest: BTreeMap::new(),
            waiting: vec![],
        }
    }

    fn behaviour(&self, endpoint: usize) -> Behaviour {
        self.behaviours.get(endpoint).copied().unwrap_or_default()
    }

    fn nobody(&self) -> bool {
        self.behaviours.iter().all(|behaviour| *behaviour == Behaviour::Honest)
    }

    /// A worker is given a round.
    pub(crate) fn given(&mut self, endpoint: usize, task: &RoundTask) {
        if self.nobody() {
            return;
        }
        self.honest.retain(|(round, _), _| *round >= task.round);
        self.waiting.retain(|(_, _, ready)| ready.round >= task.round);
        self.tasks.insert(endpoint, task.clone());
    }

    /// Whether an honest worker was given the same block in the same round.
    fn has_honest_colleague(&self, key: Key) -> bool {
        self.tasks.iter().any(|(endpoint, task)| {
            self.behaviour(*endpoint) == Behaviour::Honest && (task.round, task.block) == key
        })
    }

    /// A worker says that its delta lies in the store. Gives what the coordinator hears of it; nothing of a copier that
    /// waits for what it copies, and says so later.
    pub(crate) fn delta_ready<R: Runtime>(
        &mut self,
        worker: WorkerId,
        endpoint: usize,
        ready: DeltaReady,
        lengths: &[u32],
        desk: &mut Desk<'_, R>,
    ) -> Result<Option<Up>, SimulationError> {
        let key = (ready.round, ready.block);
        let task = self.tasks.get(&endpoint).filter(|task| (task.round, task.block) == key);
        let (false, Some(task)) = (self.nobody(), task.cloned()) else { return Ok(Some(ready.into())) };
        let behaviour = self.behaviour(endpoint);
        if behaviour == Behaviour::Copy && !self.honest.contains_key(&key) && self.has_honest_colleague(key) {
            self.waiting.push((worker, endpoint, ready));
            return Ok(None);
        }
        let file = desk.network.file(ready.blob.hash).cloned();
        let encoding = self.encoding;
        let (base, table) = (task.base.hash, task.table.hash);
        let (round, block) = key;
        let expected = DeltaExpectation { round, block, base, table, encoding, lengths, largest: f32::MAX };
        let delta = file.and_then(|bytes| delta::decode(&bytes, &expected).ok());
        let Some(mut tensors) = delta.map(|delta| delta.tensors) else { return Ok(Some(ready.into())) };
        if behaviour == Behaviour::Honest {
            self.honest.insert(key, tensors);
            for (worker, endpoint, copied) in std::mem::take(&mut self.waiting) {
                if (copied.round, copied.block) != key {
                    self.waiting.push((worker, endpoint, copied));
                } else if let Some(message) = self.delta_ready(worker, endpoint, copied, lengths, desk)? {
                    desk.say_later(COPIED_AFTER, worker, message);
                }
            }
            return Ok(Some(ready.into()));
        }
        let first = self.firsts.get(&endpoint);
        let keys = [self.seed ^ 0x6e6f, endpoint as u64, round];
        behaviour.apply(
            &mut tensors,
            first.map(Vec::as_slice),
            self.honest.get(&key).map(Vec::as_slice),
            keys,
        );
        if behaviour == Behaviour::Replay {
            self.firsts.entry(endpoint).or_insert_with(|| tensors.clone());
        }
        let header = DeltaHeader { round, block, base, table, encoding, lengths: lengths.to_vec() };
        // What a sparse delta leaves out it sends at no other time.
        let sent = delta::encode(&header, &tensors, Some(&mut vec![]));
        // Numbers that the encoding cannot hold stay unsent.
        let Ok(bytes) = sent else { return Ok(Some(ready.into())) };
        desk.network.forget(ready.blob.hash);
        let blob = desk.network.keep(bytes);
        Ok(Some(DeltaReady { blob, ..ready }.into()))
    }
}
