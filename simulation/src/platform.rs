//! What a worker's session needs of its platform, in the virtual world.

use std::{
    future::{Future, poll_fn},
    ops::Range,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use protocol::{blob::BlobHash, message::DeviceStatus, tab::SessionEvent};
use worker::platform::{self, Compute, Got, Platform, PlatformError, Put, Reporter};

use crate::{
    clock::{Ticket, seconds},
    network::Shared,
    virtual_worker::Pace,
};

/// The platform of one session.
pub(crate) type VirtualPlatform = Platform<Network, Clock, Blobs, Nobody>;

/// Gives the platform of a session at this end of the network, which computes at this pace.
pub(crate) fn platform(network: &Shared, endpoint: usize, pace: &Pace) -> VirtualPlatform {
    Platform {
        network: Network { network: network.clone(), endpoint },
        clock: Clock { network: network.clone(), pace: pace.clone() },
        blobs: Blobs { network: network.clone(), endpoint },
        reporter: Nobody,
    }
}

/// Ends when its time has come, but not before it was pending once.
struct Sleep {
    network: Shared,
    until: Duration,
    ticket: Option<Ticket>,
}

impl Sleep {
    fn until(network: &Shared, until: Duration) -> Self {
        Self { network: network.clone(), until, ticket: None }
    }

    fn of(network: &Shared, length: f64) -> Self {
        let until = network.borrow().now() + seconds(length);
        Self::until(network, until)
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.network.borrow_mut().poll_sleep(this.until, &mut this.ticket, context.waker())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.network.borrow_mut().cancel(ticket);
        }
    }
}

pub(crate) struct Network {
    network: Shared,
    endpoint: usize,
}

impl platform::Network for Network {
    type Transport = Transport;

    async fn connect(&self) -> Result<Transport, PlatformError> {
        let open = self.network.borrow_mut().request(self.endpoint, 0, 0);
        Sleep::until(&self.network, open).await;
        match self.network.borrow_mut().connect(self.endpoint) {
            Some(id) => Ok(Transport { network: self.network.clone(), id }),
            None => Err(PlatformError("nobody answers".into())),
        }
    }
}

pub(crate) struct Transport {
    network: Shared,
    id: u64,
}

impl platform::Transport for Transport {
    async fn send(&self, frame: Vec<u8>) -> Result<(), PlatformError> {
        self.network.borrow_mut().send_up(self.id, frame)
    }

    async fn receive(&self) -> Result<Vec<u8>, PlatformError> {
        poll_fn(|context| self.network.borrow_mut().poll_receive(self.id, context.waker())).await
    }

    async fn finish(&self) {
        let sent = self.network.borrow().sent(self.id);
        Sleep::until(&self.network, sent).await;
        self.network.borrow_mut().cut(self.id);
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.network.borrow_mut().drop_connection(self.id);
    }
}

pub(crate) struct Clock {
    network: Shared,
    pace: Pace,
}

impl platform::Clock for Clock {
    fn now(&self) -> f64 {
        self.network.borrow().now().as_secs_f64()
    }

    async fn sleep(&self, seconds: f64) {
        Sleep::of(&self.network, seconds).await;
    }

    async fn yield_now(&self) {
        Sleep::of(&self.network, 0.0).await;
    }

    async fn computed(&self, work: Compute<'_>) {
        let length = self.pace.seconds(work);
        if length > 0.0 {
            Sleep::of(&self.network, length).await;
        }
    }
}

pub(crate) struct Blobs {
    network: Shared,
    endpoint: usize,
}

impl Blobs {
    /// Waits for the answer to a request of so many bytes.
    async fn request(&self, up: u64, down: u64) -> Result<(), PlatformError> {
        let answered = self.network.borrow_mut().request(self.endpoint, up, down);
        Sleep::until(&self.network, answered).await;
        let mut network = self.network.borrow_mut();
        network.answer()?;
        let traffic = &mut network.endpoints[self.endpoint].traffic;
        traffic.up += up;
        traffic.down += down;
        Ok(())
    }

    /// Bytes that count for a piece of a file.
    fn counted(&self, hash: BlobHash, bytes: u64) -> u64 {
        let network = self.network.borrow();
        network.stand_in.as_ref().map_or(bytes, |stand_in| stand_in.file(hash))
    }
}

impl platform::Blobs for Blobs {
    async fn get(&self, _: &str, hash: BlobHash, range: Range<u64>) -> Result<Got, PlatformError> {
        let bytes = self.counted(hash, range.end.saturating_sub(range.start));
        self.request(0, bytes).await?;
        let network = self.network.borrow();
        let missing = || PlatformError("there is no such file in the store".into());
        let file = network.file(hash).ok_or_else(missing)?;
        let bytes = file.get(range.start as usize..range.end as usize).ok_or_else(missing)?;
        Ok(Got::Bytes(bytes.to_vec()))
    }

    async fn put(
        &self,
        _: &str,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, PlatformError> {
        let bytes = self.counted(hash, piece.len() as u64);
        self.request(bytes, 0).await?;
        self.network.borrow_mut().put(self.endpoint, hash, first, total, piece)
    }
}

/// Hears nothing of a session, and knows nothing of its device.
pub(crate) struct Nobody;

impl Reporter for Nobody {
    fn tell(&self, _: SessionEvent) {}

    fn status(&self) -> DeviceStatus {
        DeviceStatus::default()
    }
}
