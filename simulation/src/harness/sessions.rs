//! What the virtual coordinator's sessions do with frames, as its server does it.

use control::Event;
use protocol::{
    frame::{self, Frame},
    message::{Down, FromWorker, Hello, Probe, ProbeAnswer, Refuse, ToWorker, Up},
    refusal::Refusal,
    worker_id::WorkerId,
};

use super::{Alarm, Harness, Runtime};
use crate::{clock::seconds, error::SimulationError, liar};

/// Seconds between a Hello and the loss of the connection of a worker whose network does not hold.
const FLAP_SECONDS: f64 = 0.5;

impl<R: Runtime> Harness<R> {
    /// A frame has arrived at the coordinator: what its sessions do with it.
    pub(super) fn heard(&mut self, id: u64, bytes: &[u8]) -> Result<(), SimulationError> {
        let known = self.network.borrow_mut().connection(id).map(|c| (c.endpoint, c.worker));
        let Some((endpoint, worker)) = known else { return Ok(()) };
        let now = self.network.borrow().now();
        let Frame { message, payload } = match frame::decode::<FromWorker>(bytes) {
            Ok(frame) => frame,
            Err(error) => return self.refuse(id, worker, error.into()),
        };
        let message = match (message, worker) {
            (FromWorker::Up(Up::Hello(hello)), None) => return self.hello(id, endpoint, hello),
            // Of a worker that was turned away.
            (_, None) => return Ok(()),
            (FromWorker::Up(Up::Heartbeat(heartbeat)), Some(_)) => FromWorker::Up(heartbeat.into()),
            _ if self.seats[endpoint].silent_until > now => return Ok(()),
            (message, Some(_)) => message,
        };
        let Some(worker) = worker else { return Ok(()) };
        match message {
            FromWorker::Up(Up::Probe(Probe { number, answer, .. })) => {
                let padding = vec![0; answer as usize];
                self.desk(|_, desk| desk.send(worker, ProbeAnswer { number, padding: answer }, &padding))?;
                self.tell(Event::Heard { worker })
            }
            FromWorker::Relayed(relayed) => match self.runtime.relay(worker, &relayed, payload) {
                Ok(to) => {
                    let mut network = self.network.borrow_mut();
                    if let Some(connection) = to.and_then(|to| network.connection_of(to)) {
                        network.send_down(connection, bytes.to_vec());
                    }
                    drop(network);
                    self.tell(Event::Heard { worker })
                }
                Err(refusal) => self.refuse(id, Some(worker), refusal),
            },
            FromWorker::Up(message) => self.said(endpoint, worker, message),
        }
    }

    fn hello(&mut self, id: u64, endpoint: usize, hello: Hello) -> Result<(), SimulationError> {
        self.next_worker += 1;
        let worker = WorkerId(self.next_worker);
        let mut network = self.network.borrow_mut();
        network.admit(id, worker);
        if self.seats[endpoint].flaps > 0 {
            self.seats[endpoint].flaps -= 1;
            let time = network.now() + seconds(FLAP_SECONDS);
            self.pending.alarms.insert(network.alarm(time), Alarm::Cut(id));
        }
        drop(network);
        self.tell(Event::Joined { worker, hello, token: String::new() })
    }

    fn said(&mut self, endpoint: usize, worker: WorkerId, mut message: Up) -> Result<(), SimulationError> {
        if self.seats[endpoint].lies {
            self.lies += 1;
            liar::lie(&mut message, self.lies);
        }
        let joined = matches!(message, Up::Profile(_));
        let ready = matches!(message, Up::Ready(_) | Up::DeltaReady(_));
        if let Some(message) = self.desk(|runtime, desk| runtime.said(worker, message, desk))? {
            self.tell(Event::Said { worker, message })?;
        }
        if joined {
            // What joining costs is not counted.
            self.network.borrow_mut().endpoints[endpoint].traffic = Default::default();
        }
        if ready && std::mem::take(&mut self.seats[endpoint].dies_when_ready) {
            self.kill(endpoint);
        }
        Ok(())
    }

    fn refuse(&mut self, id: u64, worker: Option<WorkerId>, refusal: Refusal) -> Result<(), SimulationError> {
        self.tell(Event::Refused { worker, refusal: refusal.clone() })?;
        let why = refusal.to_string();
        let bytes = frame::encode(&ToWorker::from(Down::from(Refuse(refusal))), &[])?;
        self.network.borrow_mut().send_down(id, bytes);
        let Some(worker) = worker else { return Ok(()) };
        self.network.borrow_mut().close(worker);
        self.tell(Event::Gone { worker, why })
    }
}
