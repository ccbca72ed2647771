//! Time for the session.

use std::time::{Duration, Instant};

pub struct Clock {
    start: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl engine::session::host::Clock for Clock {
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    async fn sleep(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds.max(0.0))).await;
    }

    /// Nothing to let in: the network lives on threads of its own.
    async fn breathe(&self) {}
}
