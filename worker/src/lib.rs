//! A worker's session with the coordinator, the same natively and in a tab.
//!
//! [`run`] connects, measures the device, takes assignments, trains, and connects again when the connection
//! is lost. What it needs of the place it runs in comes through the traits of [`host`].

mod connection;
pub mod devices;
pub mod host;
mod kept;
pub mod link;
mod replica;
pub mod schedule;
mod transfer;
mod work;

use std::cell::Cell;

use futures::{FutureExt, channel::oneshot, future::Either, future::select, pin_mut};
use protocol::{message::DrainReason, message::Hello, tab::SessionEvent};

use connection::{Connection, Lent};
use devices::Devices;
use host::{Blobs, Clock, Host, Network};
use kept::Kept;
use replica::Bench;

/// Pause before the first try to connect again, in seconds; each further one is twice as long.
const FIRST_PAUSE: f64 = 0.5;
/// Longest pause between two tries to connect, in seconds.
const LONGEST_PAUSE: f64 = 30.0;

/// How a session came to its end.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// The run is over.
    Over(DrainReason),
    /// Asked to leave.
    Left,
    /// The coordinator turned this worker away, in these words.
    Refused(String),
    /// This device cannot go on.
    Failed(String),
}

/// How one connection came to its end.
enum Closed {
    For(End),
    /// Lost; worth another try. `progress`: it had got as far as a welcome.
    Lost {
        reason: String,
        progress: bool,
    },
}

/// Asked from outside to leave; can be waited for, again and again.
pub struct Leave(futures::future::Shared<oneshot::Receiver<()>>);

impl Leave {
    /// The handle, and the sender that fires it (by sending, or by being dropped).
    pub fn new() -> (oneshot::Sender<()>, Leave) {
        let (sender, receiver) = oneshot::channel();
        (sender, Leave(receiver.shared()))
    }

    async fn asked(&self) {
        // Dropped senders count as asking: nobody is left who could.
        let _ = self.0.clone().await;
    }

    fn is_asked(&self) -> bool {
        self.0.clone().now_or_never().is_some()
    }
}

/// Take part in a run until it ends, the person leaves, or the coordinator says no.
pub async fn run<N: Network, C: Clock, B: Blobs>(
    host: &Host<N, C, B>,
    hello: Hello,
    mut devices: Devices,
    leave: Leave,
) -> End {
    let mut pause = FIRST_PAUSE;
    let mut kept = Kept::default();
    let mut bench = Bench::default();
    let end = loop {
        if leave.is_asked() {
            break End::Left;
        }
        (host.tell)(SessionEvent::Connecting);
        let closed = match host.network.connect().await {
            Ok(transport) => {
                let heartbeat = Cell::new(0.0);
                let lent = Lent { devices: &mut devices, kept: &mut kept, bench: &mut bench };
                Connection::run(host, &transport, lent, &leave, &heartbeat, hello.clone()).await
            }
            Err(e) => Closed::Lost { reason: e.to_string(), progress: false },
        };
        match closed {
            Closed::For(end) => break end,
            Closed::Lost { reason, progress } => {
                if progress {
                    pause = FIRST_PAUSE;
                }
                (host.tell)(SessionEvent::Reconnecting { in_seconds: pause, reason });
                let asked = leave.asked();
                let sleep = host.clock.sleep(pause);
                pin_mut!(asked, sleep);
                if let Either::Left(_) = select(asked, sleep).await {
                    break End::Left;
                }
                pause = (pause * 2.0).min(LONGEST_PAUSE);
            }
        }
    };
    (host.tell)(match &end {
        End::Over(reason) => SessionEvent::Over { reason: *reason },
        End::Left => SessionEvent::Left,
        End::Refused(words) => SessionEvent::Refused { words: words.clone() },
        End::Failed(words) => SessionEvent::Failed { words: words.clone() },
    });
    end
}
