//! A session: connects, and connects again when the connection is lost, until there is an end.

use futures::{
    future::{Either, select},
    pin_mut,
};
use protocol::{message::Hello, tab::SessionEvent};

use crate::{
    backoff::Backoff,
    connection,
    devices::Devices,
    error::{End, Stop},
    leave::Leave,
    platform::{Blobs, Clock, Network, Platform, Reporter, seconds_since, within},
    session_state::SessionState,
};

/// Seconds that a connection may take to open.
const CONNECT_SECONDS: f64 = 15.0;

/// Takes part in a run until it ends, the person leaves, or the coordinator says no.
///
/// Ends within about a second of being asked to leave, whatever it is busy with, but for a computation that does not
/// yield: the program's edge must bound that.
pub async fn run<N: Network, C: Clock, B: Blobs, R: Reporter>(
    platform: &Platform<N, C, B, R>,
    hello: Hello,
    devices: Devices,
    leave: Leave,
) -> End {
    let mut state = SessionState::new(devices);
    let mut backoff = Backoff::new(&hello.name, platform.clock.now());
    let end = loop {
        let (lasted, stop) = connect(platform, &hello, &mut state, &leave).await;
        let (reason, in_seconds) = match stop {
            Stop::End(end) => break end,
            Stop::Lost(reason) => (reason, backoff.next(lasted, 0.0)),
            Stop::Again { after, reason } => (reason, backoff.next(lasted, after.as_secs_f64())),
        };
        platform.reporter.tell(SessionEvent::Reconnecting { in_seconds, reason });
        if or_leave(&leave, platform.clock.sleep(in_seconds)).await.is_none() {
            break End::Left;
        }
    };
    platform.reporter.tell(match &end {
        End::Over(reason) => SessionEvent::Over { reason: *reason },
        End::Left => SessionEvent::Left,
        End::Refused(words) => SessionEvent::Refused { words: words.clone() },
        End::Failed(words) => SessionEvent::Failed { words: words.clone() },
    });
    end
}

/// One connection, from its opening to its end; gives the seconds that it lasted too.
async fn connect<N: Network, C: Clock, B: Blobs, R: Reporter>(
    platform: &Platform<N, C, B, R>,
    hello: &Hello,
    state: &mut SessionState,
    leave: &Leave,
) -> (f64, Stop) {
    platform.reporter.tell(SessionEvent::Connecting);
    let connecting = within(&platform.clock, CONNECT_SECONDS, platform.network.connect());
    let stop = match or_leave(leave, connecting).await {
        None => Stop::End(End::Left),
        Some(None) => Stop::Lost(format!("the coordinator did not answer within {CONNECT_SECONDS:.0} s")),
        Some(Some(Err(error))) => error.into(),
        Some(Some(Ok(transport))) => {
            let began = platform.clock.now();
            let stop = connection::run(platform, &transport, state, leave, hello.clone()).await;
            return (seconds_since(&platform.clock, began), stop);
        }
    };
    (0.0, stop)
}

/// The outcome of `future`; None when the person leaves before.
async fn or_leave<T>(leave: &Leave, future: impl Future<Output = T>) -> Option<T> {
    let asked = leave.asked();
    pin_mut!(asked, future);
    match select(asked, future).await {
        Either::Left(_) => None,
        Either::Right((outcome, _)) => Some(outcome),
    }
}
