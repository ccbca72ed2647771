//! Decides for each tensor frame a worker sends whether it fits the plan, and who gets it.
//!
//! The coordinator never decodes a payload: the header alone is judged here, and the very bytes that
//! came in go out again.

use std::collections::HashSet;

use protocol::{
    message::{Address, Header, Pass, Relayed},
    refusal::Refusal,
    spec::RunSpec,
    worker_id::WorkerId,
};

/// Where an admitted frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// To this worker, as it came.
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
    /// Have every frame read on its way, its checksum and whether its numbers are finite; not the checksum of a sample.
    pub verify_all: bool,
    /// Steps of the whole run: a step of this number or more is validation only.
    pub steps: u64,
}

impl Relay {
    /// A relay that takes everything for stale: no plan is in force.
    pub fn closed(epoch: u64) -> Self {
        Self {
            epoch,
            step: None,
            holders: vec![],
            run: None,
            validation_batches: 0,
            seen: HashSet::new(),
            verify_all: false,
            steps: u64::MAX,
        }
    }

    /// A relay for the plan of this number, whose hops are held by `holders`; no step is open yet.
    pub fn new(epoch: u64, holders: Vec<WorkerId>, run: RunSpec, validation_batches: u32) -> Self {
        Self {
            epoch,
            step: None,
            holders,
            run: Some(run),
            validation_batches,
            seen: HashSet::new(),
            verify_all: false,
            steps: u64::MAX,
        }
    }

    /// The worker that has what it needs for the oldest open pass and has not passed it on; None where all has been
    /// passed on. Passes are worked on in their order, so nobody else can be what the step waits for.
    pub fn owing(&self) -> Option<WorkerId> {
        let (step, run) = (self.step?, self.run.as_ref()?);
        let last = (self.holders.len() as u32).checked_sub(1)?;
        let holder = |hop: u32| self.holders.get(hop as usize).copied();
        let passed = |pass, hop, direction| {
            self.seen.contains(&(Address { epoch: self.epoch, step, pass, hop }, direction))
        };
        let reached = |pass| (1..=last).rev().find(|hop| passed(pass, *hop, Direction::Forward)).unwrap_or(0);
        if step >= self.steps {
            // Validation only. Losses do not pass here: where all has been passed on, the last holder owes them.
            let batches = (0..self.validation_batches).map(|batch| reached(Pass::Validate { batch }));
            return holder(batches.min().unwrap_or(last));
        }
        for micro_batch in 0..run.micro_batches {
            let pass = Pass::Train { micro_batch };
            return holder(match (0..last).find(|hop| passed(pass, *hop, Direction::Back)) {
                Some(0) => continue,
                Some(back) => back,
                None if last == 0 => continue,
                None => reached(pass),
            });
        }
        None
    }

    /// Let the frames of `step` through, and no others.
    pub fn open_step(&mut self, step: u64) {
        self.step = Some(step);
        self.seen.clear();
    }

    /// Judge a tensor frame by its header. A frame passes once: a second one with the same address and direction is
    /// refused.
    ///
    /// # Errors
    /// [`Refusal::NotInPlan`] naming what of the header does not fit.
    pub fn admit(&mut self, from: WorkerId, message: &Relayed) -> Result<Verdict, Refusal> {
        let direction = match message {
            Relayed::Activation(_) => Direction::Forward,
            Relayed::Gradient(_) => Direction::Back,
        };
        let frame = message.frame();
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
            Direction::Back if hop < hops.saturating_sub(1) => hop + 1,
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
