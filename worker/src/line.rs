//! The line to the coordinator: frames out and in, heartbeats, and the notice of silence.
//!
//! [`Line::listen`] and [`Line::renew`] run beside whatever the session is busy with, so that the lease is renewed and a
//! lost connection is noticed in a transfer as in training.

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

/// Least seconds of heartbeats and lease that are taken from a coordinator.
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
            sent: Cell::new(0),
            received: Cell::new(0),
        }
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

    /// Takes in what arrives until the connection is closed.
    pub(crate) async fn listen(&self) -> Stop {
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

    /// Sends heartbeats, and ends once nothing was heard for a lease.
    pub(crate) async fn renew(&self, clock: &impl Clock, welcome: &Welcome) -> Stop {
        let seconds = |milliseconds: u32| (f64::from(milliseconds) / 1e3).max(LEAST_SECONDS);
        let heartbeat = seconds(welcome.heartbeat_ms);
        let beat = self.beat(clock, heartbeat).fuse();
        let watch = self.watch(clock, seconds(welcome.lease_ms).max(2.0 * heartbeat)).fuse();
        pin_mut!(beat, watch);
        select_biased! {
            stop = beat => stop,
            stop = watch => stop,
        }
    }

    async fn beat(&self, clock: &impl Clock, seconds: f64) -> Stop {
        loop {
            clock.sleep(seconds).await;
            if let Err(stop) = self.say(Heartbeat {}).await {
                return stop;
            }
        }
    }

    /// Only time in which this thread could have heard something counts: a long computation, or a sleeping device, is
    /// not the coordinator's silence.
    async fn watch(&self, clock: &impl Clock, lease: f64) -> Stop {
        let mut silent = 0.0;
        while silent < lease {
            clock.sleep(lease / PARTS).await;
            if self.heard.take() || self.inbox.is_full() {
                silent = 0.0;
            } else {
                silent += lease / PARTS;
            }
        }
        Stop::Lost(format!("nothing was heard from the coordinator for {lease:.0} s"))
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
