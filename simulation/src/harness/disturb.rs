//! Disturbances, carried out.

use super::{Alarm, Harness, Runtime};
use crate::{
    clock::seconds,
    disturbance::{Disturbance, What},
    error::SimulationError,
};

impl<R: Runtime> Harness<R> {
    pub(super) fn disturb_now(&mut self) -> Result<(), SimulationError> {
        let carried = self.network.borrow().carried;
        while self.disturbances.front().is_some_and(|disturbance| disturbance.after <= carried) {
            let Some(Disturbance { what, whom, .. }) = self.disturbances.pop_front() else { break };
            match what {
                What::Join => {
                    if let Some(newcomer) = self.newcomer.clone() {
                        self.join(newcomer)?;
                    }
                }
                What::KillCoordinator(length) => self.kill_coordinator(length),
                What::FullDisk(length) => {
                    self.pending.full_until = self.network.borrow().now() + seconds(f64::from(length));
                }
                what => self.disturb_worker(what, whom),
            }
        }
        Ok(())
    }

    fn disturb_worker(&mut self, what: What, whom: u64) {
        let alive: Vec<usize> =
            (0..self.seats.len()).filter(|seat| self.seats[*seat].abort.is_some()).collect();
        if alive.is_empty() {
            return;
        }
        let endpoint = alive[(whom % alive.len() as u64) as usize];
        if what == What::Kill {
            return self.kill(endpoint);
        }
        let mut network = self.network.borrow_mut();
        let now = network.now();
        let later = |length: u32| now + seconds(f64::from(length));
        let id = network.endpoints[endpoint].connection;
        let seat = &mut self.seats[endpoint];
        match what {
            What::Deaf(length) => network.endpoints[endpoint].deaf_until = later(length),
            What::Garble => network.endpoints[endpoint].garble = true,
            What::Silent(length) => seat.silent_until = later(length),
            What::DiesWhenReady => seat.dies_when_ready = true,
            What::Flap(times) => seat.flaps = times,
            What::Lie => seat.lies = true,
            What::Cut => {
                if let Some(id) = id {
                    network.cut(id);
                }
            }
            _ => {
                let Some(connection) = id.and_then(|id| network.connection(id)) else { return };
                match what {
                    What::HoldUp(length) => connection.held_until = later(length),
                    What::Double => connection.double = true,
                    What::Swap => connection.swap = true,
                    What::Lose => connection.lose = true,
                    _ => {}
                }
            }
        }
    }

    fn kill_coordinator(&mut self, length: u32) {
        self.pending.generation += 1;
        self.pending.told.clear();
        // Killed while it is down: it starts once, at the later time.
        self.pending.alarms.retain(|_, alarm| !matches!(alarm, Alarm::Restart | Alarm::Say(..)));
        let mut network = self.network.borrow_mut();
        network.open = false;
        network.close_all();
        let start = network.now() + seconds(f64::from(length));
        self.pending.alarms.insert(network.alarm(start), Alarm::Restart);
    }
}
