//! The two ways of training behind one face: the shell drives either.

use std::time::Duration;

use protocol::view::{CurvePoint, Phase, RunView};

use crate::{
    rounds,
    run::{
        self,
        event::{Action, Event},
    },
};

pub enum Mode {
    Pipeline(Box<run::machine::Machine>),
    Blocks(Box<rounds::machine::Machine>),
}

impl Mode {
    /// Take an event in, give the actions out that follow from it.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        match self {
            Mode::Pipeline(machine) => machine.handle(now, event),
            Mode::Blocks(machine) => machine.handle(now, event),
        }
    }

    /// When to be woken by a tick, if nothing happens before.
    pub fn wake_at(&self) -> Option<Duration> {
        match self {
            Mode::Pipeline(_) => None,
            Mode::Blocks(machine) => machine.wake_at(),
        }
    }

    pub fn phase(&self) -> Phase {
        match self {
            Mode::Pipeline(machine) => machine.phase(),
            Mode::Blocks(machine) => machine.phase(),
        }
    }

    pub fn curve(&self) -> &[CurvePoint] {
        match self {
            Mode::Pipeline(machine) => machine.curve(),
            Mode::Blocks(machine) => machine.curve(),
        }
    }

    pub fn view(&self, now: Duration) -> RunView {
        match self {
            Mode::Pipeline(machine) => machine.view(now),
            Mode::Blocks(machine) => machine.view(now),
        }
    }

    /// M of pipeline mode.
    pub fn micro_batches(&self) -> u32 {
        match self {
            Mode::Pipeline(machine) => machine.micro_batches(),
            Mode::Blocks(_) => 1,
        }
    }
}
