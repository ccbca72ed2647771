//! Time for the session.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;

pub struct Clock {
    start: Instant,
    io: Handle,
}

impl Clock {
    pub fn new(io: Handle) -> Self {
        Self { start: Instant::now(), io }
    }
}

impl engine::session::host::Clock for Clock {
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    async fn sleep(&self, seconds: f64) {
        let sleep = self.io.spawn(tokio::time::sleep(Duration::from_secs_f64(seconds.max(0.0))));
        let _ = sleep.await;
    }

    /// Nothing to let in: the network lives on threads of its own.
    async fn breathe(&self) {}
}
