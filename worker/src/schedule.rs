//! What a stage does next: one-forward-one-backward (1F1B; Narayanan et al. 2019, PipeDream).
//!
//! Backward passes go first, because they free memory and feed the stages before; forward passes follow
//! while the window has room; validation fills what is left. Pure: tensors stay with the caller.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{message::Pass, spec::Hop};

/// Work for the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Compute the hop's output and send it on.
    Forward {
        /// Pipeline position whose part computes.
        hop: u32,
        /// Of which pass.
        pass: Pass,
    },
    /// Compute the loss and, in training, go back through the hop at once.
    Loss {
        /// Pipeline position whose part computes.
        hop: u32,
        /// Of which pass.
        pass: Pass,
    },
    /// Go back through the hop and send the gradient on.
    Backward {
        /// Pipeline position whose part computes.
        hop: u32,
        /// From 0, in the step.
        micro_batch: u32,
    },
}

/// Why something that arrived cannot be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// It is for a hop that another worker holds.
    #[error("hop {0} is not held here")]
    NotHere(u32),
    /// It has been here before.
    #[error("{pass:?} arrived twice at hop {hop}")]
    Twice {
        /// Pipeline position.
        hop: u32,
        /// Of which pass.
        pass: Pass,
    },
    /// Its micro-batch is not one of the step.
    #[error("there is no {0:?} in this step")]
    NoSuchPass(Pass),
    /// A gradient of something that has not left.
    #[error("a gradient for micro-batch {micro_batch} came to hop {hop} before its forward pass was sent")]
    TooEarly {
        /// Pipeline position.
        hop: u32,
        /// From 0, in the step.
        micro_batch: u32,
    },
}

#[derive(Debug, Clone, Default)]
struct HopState {
    is_head: bool,
    inputs: BTreeSet<Pass>,
    targets: BTreeSet<Pass>,
    gradients: BTreeSet<u32>,
    /// Everything that ever arrived in this step: each thing is taken once.
    seen_inputs: BTreeSet<Pass>,
    seen_targets: BTreeSet<Pass>,
    seen_gradients: BTreeSet<u32>,
    /// Between forward and backward.
    open: BTreeSet<u32>,
    done: u32,
}

/// The schedule of one stage in one step.
#[derive(Debug, Clone)]
pub struct Schedule {
    hops: BTreeMap<u32, HopState>,
    micro_batches: u32,
    window: u32,
}

impl Schedule {
    /// For a step of `micro_batches`; at most `window` of them between forward and backward.
    pub fn new(hops: &[Hop], micro_batches: u32, window: u32) -> Self {
        let state = |hop: &Hop| HopState { is_head: hop.part.head, ..HopState::default() };
        Self {
            hops: hops.iter().map(|hop| (hop.index, state(hop))).collect(),
            micro_batches,
            window: window.max(1),
        }
    }

    fn hop(&mut self, hop: u32) -> Result<&mut HopState, ScheduleError> {
        self.hops.get_mut(&hop).ok_or(ScheduleError::NotHere(hop))
    }

    fn check(&self, pass: Pass) -> Result<(), ScheduleError> {
        match pass {
            Pass::Train { micro_batch } if micro_batch >= self.micro_batches => {
                Err(ScheduleError::NoSuchPass(pass))
            }
            _ => Ok(()),
        }
    }

    /// Tokens or an activation for `hop` arrived.
    ///
    /// # Errors
    /// One that is not due: of a hop not held here, of another pass, or here already.
    pub fn input(&mut self, hop: u32, pass: Pass) -> Result<(), ScheduleError> {
        self.check(pass)?;
        let state = self.hop(hop)?;
        if !state.seen_inputs.insert(pass) {
            return Err(ScheduleError::Twice { hop, pass });
        }
        state.inputs.insert(pass);
        Ok(())
    }

    /// Targets for the head at `hop` arrived.
    ///
    /// # Errors
    /// As for [`Schedule::input`].
    pub fn targets(&mut self, hop: u32, pass: Pass) -> Result<(), ScheduleError> {
        self.check(pass)?;
        let state = self.hop(hop)?;
        if !state.seen_targets.insert(pass) {
            return Err(ScheduleError::Twice { hop, pass });
        }
        state.targets.insert(pass);
        Ok(())
    }

    /// The gradient of what left `hop` arrived.
    ///
    /// # Errors
    /// As for [`Schedule::input`].
    pub fn gradient(&mut self, hop: u32, micro_batch: u32) -> Result<(), ScheduleError> {
        let pass = Pass::Train { micro_batch };
        self.check(pass)?;
        let state = self.hop(hop)?;
        if !state.open.contains(&micro_batch) && !state.seen_gradients.contains(&micro_batch) {
            return Err(ScheduleError::TooEarly { hop, micro_batch });
        }
        if !state.seen_gradients.insert(micro_batch) {
            return Err(ScheduleError::Twice { hop, pass });
        }
        state.gradients.insert(micro_batch);
        Ok(())
    }

    /// The next thing to do, taken as begun; None when something must arrive first.
    pub fn next_op(&mut self) -> Option<Op> {
        self.next_backward()
            .or_else(|| self.next_loss(true))
            .or_else(|| self.next_forward())
            .or_else(|| self.next_loss(false).or_else(|| self.next_validation()))
    }

    /// All backward passes of the step are done.
    pub fn trained(&self) -> bool {
        self.hops.values().all(|h| h.done == self.micro_batches)
    }

    fn next_backward(&mut self) -> Option<Op> {
        for (hop, state) in self.hops.iter_mut().rev() {
            if let Some(micro_batch) = state.gradients.pop_first() {
                state.open.remove(&micro_batch);
                state.done += 1;
                return Some(Op::Backward { hop: *hop, micro_batch });
            }
        }
        None
    }

    /// A loss is forward and backward in one and never waits for the window.
    fn next_loss(&mut self, training: bool) -> Option<Op> {
        for (hop, state) in self.hops.iter_mut().filter(|(_, s)| s.is_head) {
            let ready = state
                .inputs
                .iter()
                .copied()
                .find(|p| matches!(p, Pass::Train { .. }) == training && state.targets.contains(p));
            if let Some(pass) = ready {
                state.inputs.remove(&pass);
                state.targets.remove(&pass);
                state.done += u32::from(training);
                return Some(Op::Loss { hop: *hop, pass });
            }
        }
        None
    }

    fn next_forward(&mut self) -> Option<Op> {
        let window = self.window as usize;
        for (hop, state) in self.hops.iter_mut().filter(|(_, s)| !s.is_head) {
            if state.open.len() >= window {
                continue;
            }
            // `Pass` orders training before validation, and micro-batches by number.
            if let Some(pass @ Pass::Train { micro_batch }) = state.inputs.first().copied() {
                state.inputs.remove(&pass);
                state.open.insert(micro_batch);
                return Some(Op::Forward { hop: *hop, pass });
            }
        }
        None
    }

    fn next_validation(&mut self) -> Option<Op> {
        for (hop, state) in self.hops.iter_mut().filter(|(_, s)| !s.is_head) {
            if let Some(pass @ Pass::Validate { .. }) = state.inputs.last().copied() {
                state.inputs.remove(&pass);
                return Some(Op::Forward { hop: *hop, pass });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use protocol::spec::Part;

    use super::*;

    fn hop(index: u32, head: bool) -> Hop {
        Hop { index, part: Part { embedding: index == 0, first_layer: index, end_layer: index + 1, head } }
    }

    fn train(micro_batch: u32) -> Pass {
        Pass::Train { micro_batch }
    }

    #[test]
    fn backward_goes_before_forward_and_the_window_bounds_what_is_open() {
        let mut s = Schedule::new(&[hop(0, false)], 4, 2);
        for m in 0..4 {
            s.input(0, train(m)).unwrap();
        }
        assert_eq!(s.next_op(), Some(Op::Forward { hop: 0, pass: train(0) }));
        assert_eq!(s.next_op(), Some(Op::Forward { hop: 0, pass: train(1) }));
        assert_eq!(s.next_op(), None, "two are open, the window is two");
        s.gradient(0, 0).unwrap();
        assert_eq!(s.next_op(), Some(Op::Backward { hop: 0, micro_batch: 0 }));
        assert_eq!(s.next_op(), Some(Op::Forward { hop: 0, pass: train(2) }));
        for m in [1, 2] {
            s.gradient(0, m).unwrap();
        }
        assert_eq!(s.next_op(), Some(Op::Backward { hop: 0, micro_batch: 1 }));
        assert_eq!(s.next_op(), Some(Op::Backward { hop: 0, micro_batch: 2 }));
        assert_eq!(s.next_op(), Some(Op::Forward { hop: 0, pass: train(3) }));
        assert!(!s.trained());
        s.gradient(0, 3).unwrap();
        s.next_op();
        assert!(s.trained());
    }

    #[test]
    fn a_loss_waits_for_its_targets_and_training_goes_before_validation() {
        let mut s = Schedule::new(&[hop(1, true)], 1, 1);
        let validate = Pass::Validate { batch: 0 };
        s.input(1, validate).unwrap();
        s.input(1, train(0)).unwrap();
        assert_eq!(s.next_op(), None);
        s.targets(1, validate).unwrap();
        s.targets(1, train(0)).unwrap();
        assert_eq!(s.next_op(), Some(Op::Loss { hop: 1, pass: train(0) }));
        assert_eq!(s.next_op(), Some(Op::Loss { hop: 1, pass: validate }));
        assert!(s.trained());
    }

    #[test]
    fn a_stage_with_embedding_and_head_of_a_tied_model_does_both_hops() {
        let mut s = Schedule::new(&[hop(0, false), hop(2, true)], 1, 3);
        s.input(0, train(0)).unwrap();
        s.targets(2, train(0)).unwrap();
        assert_eq!(s.next_op(), Some(Op::Forward { hop: 0, pass: train(0) }));
        s.input(2, train(0)).unwrap();
        assert_eq!(s.next_op(), Some(Op::Loss { hop: 2, pass: train(0) }));
        assert!(!s.trained());
        s.gradient(0, 0).unwrap();
        assert_eq!(s.next_op(), Some(Op::Backward { hop: 0, micro_batch: 0 }));
        assert!(s.trained());
    }

    #[test]
    fn nothing_is_taken_twice_or_out_of_turn() {
        let mut s = Schedule::new(&[hop(0, false)], 2, 2);
        assert_eq!(s.gradient(0, 0), Err(ScheduleError::TooEarly { hop: 0, micro_batch: 0 }));
        s.input(0, train(0)).unwrap();
        assert_eq!(s.input(0, train(0)), Err(ScheduleError::Twice { hop: 0, pass: train(0) }));
        assert_eq!(s.input(0, train(2)), Err(ScheduleError::NoSuchPass(train(2))));
        assert_eq!(s.input(7, train(0)), Err(ScheduleError::NotHere(7)));
        s.next_op();
        s.gradient(0, 0).unwrap();
        s.next_op();
        assert_eq!(s.gradient(0, 0), Err(ScheduleError::Twice { hop: 0, pass: train(0) }));
    }
}
