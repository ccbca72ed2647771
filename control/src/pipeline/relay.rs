//! Decides for each tensor frame a worker sends whether it fits the plan, and who gets it.
//!
//! The coordinator never decodes a payload: the header alone is judged here, and the very bytes that
//! came in go out again.

use std::collections::HashSet;

use protocol::{
    message::{Address, Message, Pass},
    refusal::Refusal,
    spec::RunSpec,
};

use super::event::WorkerId;

/// Where an admitted frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Forward(WorkerId),
    /// Of a plan or step that has ended: honest workers send such frames while a new plan is under way.
    Stale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Direction {
    Forward,
    Back,
}

/// The plan as far as frames are concerned.
#[derive(Debug, Clone)]
pub struct Relay {
    epoch: u64,
    /// The step whose frames pass; None before the first.
    step: Option<u64>,
    /// Holder of each hop.
    holders: Vec<WorkerId>,
    run: Option<RunSpec>,
    validation_batches: u32,
    seen: HashSet<(Address, Direction)>,
}

impl Relay {
    /// A relay that takes everything for stale: no plan is in force.
    pub fn closed(epoch: u64) -> Self {
        Self { epoch, step: None, holders: vec![], run: None, validation_batches: 0, seen: HashSet::new() }
    }

    pub fn new(epoch: u64, holders: Vec<WorkerId>, run: RunSpec, validation_batches: u32) -> Self {
        Self { epoch, step: None, holders, run: Some(run), validation_batches, seen: HashSet::new() }
    }

    /// Let the frames of `step` through, and no others.
    pub fn open_step(&mut self, step: u64) {
        self.step = Some(step);
        self.seen.clear();
    }

    /// Judge a tensor frame by its header.
    ///
    /// A frame passes once: a second one with the same address and direction is refused.
    pub fn admit(&mut self, from: WorkerId, message: &Message) -> Result<Verdict, Refusal> {
        let (frame, direction) = match message {
            Message::Activation(frame) => (frame, Direction::Forward),
            Message::Gradient(frame) => (frame, Direction::Back),
            other => {
                return Err(Refusal::Unexpected {
                    message: other.name().into(),
                    detail: "only activations and gradients are relayed".into(),
                });
            }
        };
        let refuse = |detail: String| Err(Refusal::NotInPlan { message: message.name().into(), detail });
        let Address { epoch, step, pass, hop } = frame.to;
        if epoch > self.epoch {
            return refuse(format!("it names epoch {epoch}, the plan is at {}", self.epoch));
        }
        if epoch < self.epoch {
            return Ok(Verdict::Stale);
        }
        let (Some(open), Some(run)) = (self.step, self.run.as_ref()) else { return Ok(Verdict::Stale) };
        if step < open {
            return Ok(Verdict::Stale);
        }
        if step > open {
            return refuse(format!("it names step {step}, the run is at {open}"));
        }
        let hops = self.holders.len() as u32;
        let sender = match direction {
            Direction::Forward if hop >= 1 && hop < hops => hop - 1,
            Direction::Back if hop + 1 < hops => hop + 1,
            _ => return refuse(format!("hop {hop} of {hops} gets no such tensor")),
        };
        if self.holders[sender as usize] != from {
            return refuse(format!("hop {sender} is not held by this worker"));
        }
        let width = [run.sequences, run.context, run.model.width];
        if frame.tensor.shape != width {
            return refuse(format!("its shape is {:?}, the run's is {width:?}", frame.tensor.shape));
        }
        if frame.tensor.encoding != run.wire {
            return refuse(format!(
                "its encoding is {:?}, the run's is {:?}",
                frame.tensor.encoding, run.wire
            ));
        }
        match (pass, direction) {
            (Pass::Train { micro_batch }, _) if micro_batch < run.micro_batches => {}
            (Pass::Validate { batch }, Direction::Forward) if batch < self.validation_batches => {}
            _ => return refuse(format!("there is no {pass:?} in this direction")),
        }
        if !self.seen.insert((frame.to, direction)) {
            return refuse(format!("{pass:?} of step {step} came twice"));
        }
        Ok(Verdict::Forward(self.holders[hop as usize]))
    }
}
