//! Tensor frames in any order and from anybody against a plan, beside a second statement of what may pass.

use std::collections::HashSet;

use arbitrary::{Arbitrary, Unstructured};
use control::pipeline::{Relay, Verdict};
use protocol::{
    message::{Activation, Address, Gradient, Pass, Relayed, TensorFrame},
    refusal::Refusal,
    spec::RunSpec,
    tensor::{Encoding, TensorMeta},
    worker_id::WorkerId,
};

/// The plan: who holds each hop, and how many passes there are.
#[derive(Debug, Arbitrary)]
struct Plan {
    epoch: u64,
    /// One worker may hold several hops, as the first does with tied embeddings.
    holders: Vec<u8>,
    micro_batches: u8,
    batches: u8,
    steps: u64,
}

/// What happens next.
#[derive(Debug, Arbitrary)]
enum Next {
    /// Frames of this step pass from here on.
    Open(u64),
    /// A frame that is near to what fits: each part is the right one, or another.
    Near { from: u8, back: bool, hop: u8, number: u8, validate: bool, wrong: Wrong },
    /// Any frame at all.
    Any { from: u64, back: bool, epoch: u64, step: u64, hop: u32, number: u32, validate: bool },
}

/// What is wrong with a frame that is otherwise near to what fits.
#[derive(Debug, Clone, Copy, PartialEq, Arbitrary)]
enum Wrong {
    Nothing,
    OldEpoch,
    NewEpoch,
    OldStep,
    NewStep,
    Shape,
    Rank,
    Encoding,
}

/// Reads `bytes` as a plan and what happens under it.
///
/// # Panics
/// When something is not as it must be.
pub fn check(bytes: &[u8]) -> bool {
    let mut bytes = Unstructured::new(bytes);
    let Ok(mut plan) = Plan::arbitrary(&mut bytes) else { return false };
    plan.holders.truncate(6);
    let mut world = World::new(&plan);
    let mut passed = false;
    while !bytes.is_empty() {
        let Ok(next) = Next::arbitrary(&mut bytes) else { break };
        match next {
            Next::Open(step) => world.open(step),
            Next::Near { .. } | Next::Any { .. } => passed |= world.frame(&next),
        }
    }
    passed
}

/// The relay, and what is known of it from outside.
struct World {
    relay: Relay,
    run: RunSpec,
    epoch: u64,
    step: Option<u64>,
    holders: Vec<WorkerId>,
    batches: u32,
    passed: HashSet<(Address, bool)>,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let micro_batches = u32::from(plan.micro_batches % 4);
        let run = RunSpec { micro_batches, wire: Encoding::F16, ..testkit::fixtures::run() };
        let holders: Vec<WorkerId> = plan.holders.iter().map(|holder| WorkerId((*holder).into())).collect();
        let batches = u32::from(plan.batches % 3);
        let mut relay = Relay::new(plan.epoch, holders.clone(), run.clone(), batches);
        relay.steps = plan.steps;
        Self { relay, run, epoch: plan.epoch, step: None, holders, batches, passed: HashSet::new() }
    }

    fn open(&mut self, step: u64) {
        self.relay.open_step(step);
        self.step = Some(step);
        self.passed.clear();
    }

    /// Gives a frame to the relay; true where it passed.
    fn frame(&mut self, next: &Next) -> bool {
        let (from, back, frame) = self.written(next);
        let message: Relayed =
            if back { Gradient(frame.clone()).into() } else { Activation(frame.clone()).into() };
        let late = frame.to.epoch < self.epoch
            || frame.to.epoch == self.epoch && self.step.is_none_or(|open| frame.to.step < open);
        let fits = self.fits(from, back, &frame);
        match self.relay.admit(from, &message) {
            Ok(Verdict::Forward(to)) => {
                assert!(fits && !late, "{message:?} of {from:?} passed");
                assert_eq!(Some(&to), self.holders.get(frame.to.hop as usize));
                assert!(self.passed.insert((frame.to, back)), "{message:?} passed twice");
            }
            Ok(Verdict::Stale) => assert!(late && !fits, "{message:?} of {from:?} was taken for late"),
            Err(refusal) => {
                assert!(!fits && !late, "{message:?} of {from:?} was turned away: {refusal}");
                assert!(
                    matches!(&refusal, Refusal::NotInPlan { detail, .. } if !detail.is_empty()),
                    "{refusal}"
                );
            }
        }
        let owing = self.relay.owing();
        assert!(owing.is_none_or(|worker| self.holders.contains(&worker)), "{owing:?} holds nothing");
        let train = 2 * self.run.micro_batches as usize;
        let most = self.holders.len().saturating_sub(1) * (train + self.batches as usize);
        assert!(self.passed.len() <= most, "{} frames of a step passed", self.passed.len());
        fits
    }

    /// Who says what: sender, whether it is a gradient, and the frame.
    fn written(&self, next: &Next) -> (WorkerId, bool, TensorFrame) {
        let shape = vec![self.run.sequences, self.run.context, self.run.model.width];
        let mut tensor = TensorMeta { encoding: self.run.wire, bytes: 0, checksum: 0, shape };
        let pass = |validate, number| {
            if validate { Pass::Validate { batch: number } } else { Pass::Train { micro_batch: number } }
        };
        match *next {
            Next::Open(_) => unreachable!("is no frame"),
            Next::Any { from, back, epoch, step, hop, number, validate } => {
                let to = Address { epoch, step, pass: pass(validate, number), hop };
                (WorkerId(from), back, TensorFrame { to, tensor })
            }
            Next::Near { from, back, hop, number, validate, wrong } => {
                let (mut epoch, mut step) = (self.epoch, self.step.unwrap_or(0));
                match wrong {
                    Wrong::Nothing => {}
                    Wrong::OldEpoch => epoch = epoch.saturating_sub(1),
                    Wrong::NewEpoch => epoch = epoch.saturating_add(1),
                    Wrong::OldStep => step = step.saturating_sub(1),
                    Wrong::NewStep => step = step.saturating_add(1),
                    Wrong::Shape => tensor.shape[1] += 1,
                    Wrong::Rank => tensor.shape.push(1),
                    Wrong::Encoding => tensor.encoding = Encoding::F32,
                }
                let hop = u32::from(hop % 8);
                // From whoever should send it, or the worker of this number.
                let sender = if back { hop.checked_add(1) } else { hop.checked_sub(1) };
                let due = sender.and_then(|hop| self.holders.get(hop as usize)).filter(|_| from >= 64);
                let from = due.copied().unwrap_or(WorkerId(from.into()));
                let to = Address { epoch, step, pass: pass(validate, u32::from(number % 5)), hop };
                (from, back, TensorFrame { to, tensor })
            }
        }
    }

    /// Whether this worker may send this frame now.
    fn fits(&self, from: WorkerId, back: bool, frame: &TensorFrame) -> bool {
        let hop = frame.to.hop as usize;
        let holder_before = if back {
            self.holders.get(hop.saturating_add(1))
        } else {
            hop.checked_sub(1).and_then(|hop| self.holders.get(hop))
        };
        let pass_exists = match frame.to.pass {
            Pass::Train { micro_batch } => micro_batch < self.run.micro_batches,
            Pass::Validate { batch } => !back && batch < self.batches,
        };
        frame.to.epoch == self.epoch
            && Some(frame.to.step) == self.step
            && hop < self.holders.len()
            && holder_before == Some(&from)
            && pass_exists
            && frame.tensor.shape == [self.run.sequences, self.run.context, self.run.model.width]
            && frame.tensor.encoding == self.run.wire
            && !self.passed.contains(&(frame.to, back))
    }
}
