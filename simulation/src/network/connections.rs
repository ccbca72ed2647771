//! Connections over the virtual network: frames up and down in their order, and how a connection ends.

use std::{
    collections::VecDeque,
    task::{Poll, Waker},
    time::Duration,
};

use protocol::{frame, message::FromWorker, worker_id::WorkerId};
use worker::platform::PlatformError;

use super::{Due, Endpoint, Network, flip, leave};
use crate::clock::seconds;

/// One connection of a worker to the coordinator.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub endpoint: usize,
    /// Once it was let in.
    pub worker: Option<WorkerId>,
    pub(super) inbox: VecDeque<Vec<u8>>,
    pub(super) reader: Option<Waker>,
    pub(super) closed: bool,
    /// The coordinator knows that it is closed.
    pub(super) noticed: bool,
    /// The worker has let go of it.
    pub(super) dropped: bool,
    /// No frame overtakes another: when the last one arrives.
    pub(super) last_up: Duration,
    pub(super) last_down: Duration,
    /// It carries nothing before.
    pub held_until: Duration,
    /// Its next frame comes twice.
    pub double: bool,
    /// Its next frame is lost.
    pub lose: bool,
    /// Its next two frames change places.
    pub swap: bool,
    /// Waits to be overtaken.
    pub(super) overtaken: Option<Vec<u8>>,
}

fn closed() -> PlatformError {
    PlatformError("the connection was lost".into())
}

impl Network {
    pub(crate) fn connect(&mut self, endpoint: usize) -> Option<u64> {
        if !self.open {
            return None;
        }
        self.next_connection += 1;
        let id = self.next_connection;
        self.connections.insert(id, Connection { endpoint, ..Connection::default() });
        self.endpoints[endpoint].connection = Some(id);
        Some(id)
    }

    pub(crate) fn connection(&mut self, id: u64) -> Option<&mut Connection> {
        self.connections.get_mut(&id).filter(|connection| !connection.closed)
    }

    /// Notes that a connection is that of a worker.
    pub(crate) fn admit(&mut self, id: u64, worker: WorkerId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.worker = Some(worker);
            self.of_worker.insert(worker, id);
        }
    }

    pub(crate) fn connection_of(&self, worker: WorkerId) -> Option<u64> {
        self.of_worker.get(&worker).copied()
    }

    /// The end of the network at which a worker is.
    pub(crate) fn endpoint_of(&self, worker: WorkerId) -> Option<usize> {
        let connection = self.connections.get(self.of_worker.get(&worker)?)?;
        Some(connection.endpoint)
    }

    fn delay(&mut self, endpoint: usize) -> Duration {
        let jitter = if self.weather.jitter > 0.0 { self.weather.jitter * self.draws.even() } else { 0.0 };
        let Endpoint { link, slower, .. } = &self.endpoints[endpoint];
        seconds(link.latency * slower + jitter)
    }

    /// A worker hands a frame over.
    ///
    /// # Errors
    /// When the connection is closed.
    pub(crate) fn send_up(&mut self, id: u64, mut bytes: Vec<u8>) -> Result<(), PlatformError> {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.closed) else {
            return Err(closed());
        };
        let endpoint = connection.endpoint;
        if self.endpoints[endpoint].garble && is_tensor(&bytes) {
            self.endpoints[endpoint].garble = false;
            flip(&mut bytes);
        }
        let mut out = Vec::new();
        if std::mem::take(&mut connection.lose) {
            return Ok(());
        } else if let Some(before) = connection.overtaken.take() {
            out.extend([bytes, before]);
        } else if std::mem::take(&mut connection.swap) {
            connection.overtaken = Some(bytes);
        } else {
            if std::mem::take(&mut connection.double) {
                out.push(bytes.clone());
            }
            out.push(bytes);
        }
        for bytes in out {
            let length = self.stand_in.as_ref().map_or(bytes.len() as u64, |stand_in| stand_in.up(&bytes));
            let delay = self.delay(endpoint);
            let end = &mut self.endpoints[endpoint];
            end.traffic.up += length;
            let left = leave(&mut end.lanes.frames_up, now, length, end.link.up, end.slower);
            let Some(connection) = self.connections.get_mut(&id) else { break };
            let arrives = (left + delay).max(connection.last_up).max(connection.held_until);
            connection.last_up = arrives;
            self.queue.at(arrives, Due::ToCoordinator { connection: id, bytes });
        }
        Ok(())
    }

    /// When everything that a worker has sent has arrived.
    pub(crate) fn sent(&self, id: u64) -> Duration {
        self.connections.get(&id).map_or(self.now(), |connection| connection.last_up)
    }

    /// The coordinator sends a frame.
    pub(crate) fn send_down(&mut self, id: u64, bytes: Vec<u8>) {
        let now = self.now();
        let Some(endpoint) = self.connection(id).map(|connection| connection.endpoint) else { return };
        let length = self.stand_in.as_ref().map_or(bytes.len() as u64, |stand_in| stand_in.down(&bytes));
        let delay = self.delay(endpoint);
        let end = &mut self.endpoints[endpoint];
        end.traffic.down += length;
        let left = leave(&mut end.lanes.frames_down, now, length, end.link.down, end.slower);
        let Some(connection) = self.connection(id) else { return };
        let arrives = (left + delay).max(connection.last_down).max(connection.held_until);
        connection.last_down = arrives;
        self.queue.at(arrives, Due::ToWorker { connection: id, bytes });
    }

    pub(crate) fn poll_receive(&mut self, id: u64, waker: &Waker) -> Poll<Result<Vec<u8>, PlatformError>> {
        let Some(connection) = self.connections.get_mut(&id) else { return Poll::Ready(Err(closed())) };
        match connection.inbox.pop_front() {
            Some(bytes) => Poll::Ready(Ok(bytes)),
            None if connection.closed => Poll::Ready(Err(closed())),
            None => {
                connection.reader = Some(waker.clone());
                Poll::Pending
            }
        }
    }

    /// Closes a connection now; the coordinator notices after a while.
    pub(crate) fn cut(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| !connection.closed) else {
            return;
        };
        connection.close();
        let endpoint = connection.endpoint;
        let time = self.now() + self.delay(endpoint);
        self.queue.at(time, Due::Lost { connection: id });
    }

    /// The worker lets go of a connection.
    pub(crate) fn drop_connection(&mut self, id: u64) {
        self.cut(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.dropped = true;
            if connection.noticed {
                self.connections.remove(&id);
            }
        }
    }

    /// The coordinator closes a worker's connection, after all that was sent on it has arrived.
    pub(crate) fn close(&mut self, worker: WorkerId) {
        let Some(id) = self.of_worker.remove(&worker) else { return };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.worker = None;
            let time = connection.last_down + Duration::from_micros(1);
            self.queue.at(time, Due::Lost { connection: id });
        }
    }

    /// The coordinator is gone: all connections close, and nobody is known any more.
    pub(crate) fn close_all(&mut self) {
        self.of_worker.clear();
        let all: Vec<u64> = self.connections.keys().copied().collect();
        for id in all {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.worker = None;
            }
            self.cut(id);
        }
    }
}

impl Connection {
    pub(super) fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.wake();
    }
}

fn is_tensor(bytes: &[u8]) -> bool {
    frame::decode::<FromWorker>(bytes).is_ok_and(|frame| matches!(frame.message, FromWorker::Relayed(_)))
}
