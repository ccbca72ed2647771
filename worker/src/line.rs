//! The line to the coordinator: frames out and in, heartbeats, and the notice of silence.
//!
//! [`Line::keep`] runs beside whatever the session is busy with, so that the lease is renewed and a lost connection is
//! noticed in a transfer as in training.

use std::cell::Cell;

use futures::{FutureExt, pin_mut, select_biased};
use protocol::{
    frame::{self, Frame},
    message::{Down, FromWorker, Heartbeat, Refuse, ToWorker, Up, Welcome},
};

use crate::{
    error::{End, Stop},
    inbox::Inbox,
    platform::{Clock, Transport},
};

/// Seconds between heartbeats before the coordinator has said how many.
const FIRST_HEARTBEAT_SECONDS: f64 = 5.0;
/// Seconds to wait for the coordinator's answer to Hello.
const FIRST_LEASE_SECONDS: f64 = 20.0;
/// Least seconds of either that are taken from a coordinator.
const LEAST_SECONDS: f64 = 0.05;
/// Silence is measured in this many parts of the lease.
const PARTS: f64 = 8.0;

/// One connection, and what has gone over it.
pub(crate) struct Line<'a, T> {
    transport: &'a T,
    /// What has arrived.
    pub(crate) inbox: Inbox,
    /// Something has arrived since silence was last looked at.
    heard: Cell<bool>,
    heartbeat_seconds: Cell<f64>,
    lease_seconds: Cell<f64>,
    /// Bytes over this connection and beside it, in blobs.
    pub(crate) sent: Cell<u64>,
    pub(crate) received: Cell<u64>,
}

impl<'a, T: Transport> Line<'a, T> {
    pub(crate) fn new(transport: &'a T) -> Self {
        Self {
            transport,
            inbox: Inbox::default(),
            heard: Cell::new(false),
            heartbeat_seconds: Cell::new(FIRST_HEARTBEAT_SECONDS),
            lease_seconds: Cell::new(FIRST_LEASE_SECONDS),
            sent: Cell::new(0),
            received: Cell::new(0),
        }
    }

    /// Heartbeats and lease from now on.
    pub(crate) fn welcomed(&self, welcome: &Welcome) {
        let seconds = |milliseconds: u32| (f64::from(milliseconds) / 1e3).max(LEAST_SECONDS);
        self.heartbeat_seconds.set(seconds(welcome.heartbeat_ms));
        self.lease_seconds.set(seconds(welcome.lease_ms).max(2.0 * self.heartbeat_seconds.get()));
    }

    pub(crate) async fn send(&self, message: impl Into<FromWorker>, payload: &[u8]) -> Result<(), Stop> {
        let bytes =
            frame::encode(&message.into(), payload).map_err(|error| Stop::failed(error.to_string()))?;
        self.sent.set(self.sent.get() + bytes.len() as u64);
        Ok(self.transport.send(bytes).await?)
    }

    /// Says something to the coordinator that has no payload.
    pub(crate) async fn say(&self, message: impl Into<Up>) -> Result<(), Stop> {
        self.send(message.into(), &[]).await
    }

    /// The same with a payload.
    pub(crate) async fn say_with(&self, message: impl Into<Up>, payload: &[u8]) -> Result<(), Stop> {
        self.send(message.into(), payload).await
    }

    /// Listens and sends heartbeats until the connection is lost, closed or silent.
    pub(crate) async fn keep(&self, clock: &impl Clock) -> Stop {
        let listen = self.listen().fuse();
        let beat = self.beat(clock).fuse();
        let watch = self.watch(clock).fuse();
        pin_mut!(listen, beat, watch);
        // What has arrived is taken in before anybody asks whether it was silent.
        select_biased! {
            stop = listen => stop,
            stop = beat => stop,
            stop = watch => stop,
        }
    }

    async fn listen(&self) -> Stop {
        loop {
            self.inbox.room().await;
            match self.transport.receive().await {
                Ok(bytes) => {
                    self.heard.set(true);
                    self.received.set(self.received.get() + bytes.len() as u64);
                    self.inbox.push(bytes);
                }
                Err(error) => return error.into(),
            }
        }
    }

    async fn beat(&self, clock: &impl Clock) -> Stop {
        loop {
            clock.sleep(self.heartbeat_seconds.get()).await;
            if let Err(stop) = self.say(Heartbeat {}).await {
                return stop;
            }
        }
    }

    /// Ends once nothing was heard for a lease. Only time in which this thread could have heard something counts: a long
    /// computation, or a sleeping device, is not the coordinator's silence.
    async fn watch(&self, clock: &impl Clock) -> Stop {
        let mut silent = 0.0;
        loop {
            let lease = self.lease_seconds.get();
            clock.sleep(lease / PARTS).await;
            if self.heard.take() || self.inbox.is_full() {
                silent = 0.0;
            } else {
                silent += lease / PARTS;
            }
            // The lease may have become shorter with the welcome.
            if silent >= self.lease_seconds.get() {
                return Stop::Lost(format!("nothing was heard from the coordinator for {silent:.0} s"));
            }
        }
    }

    /// Why the coordinator closed the connection, if it said so and the word was not looked at yet.
    pub(crate) fn last_word(&self) -> Option<Stop> {
        while let Some(Ok(bytes)) = self.transport.receive().now_or_never() {
            self.inbox.push(bytes);
        }
        std::iter::from_fn(|| self.inbox.pop()).find_map(|bytes| match frame::decode(&bytes) {
            Ok(Frame { message: ToWorker::Down(Down::Refuse(Refuse(refusal))), .. }) => Some(refusal.into()),
            Ok(Frame { message: ToWorker::Down(Down::Drain(drain)), .. }) => {
                Some(Stop::End(End::Over(drain.reason)))
            }
            _ => None,
        })
    }

    pub(crate) async fn finish(&self) {
        self.transport.finish().await;
    }
}
