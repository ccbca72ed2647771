//! Time for the session.

use std::{
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use worker::platform;

/// Time since the program began to take part.
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl platform::Clock for Clock {
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    async fn sleep(&self, seconds: f64) {
        tokio::time::sleep(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)).await;
    }

    /// The network lives on threads of its own, but what has come from there is taken in by this one.
    async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|context| match yielded {
            true => Poll::Ready(()),
            false => {
                yielded = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }
}
