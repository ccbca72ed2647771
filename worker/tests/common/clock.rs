//! Virtual time.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use worker::platform::{self, Compute};

/// Seconds of a unit of computing.
pub const LOCAL_STEP: f64 = 10.0;
pub const FORWARD: f64 = 1.0;
pub const BACKWARD: f64 = 2.0;
pub const LOSS: f64 = 3.0;
pub const UPDATE: f64 = 0.5;
pub const EVALUATION_PASS: f64 = 4.0;

/// Stands still until everybody waits.
#[derive(Default)]
pub struct Time {
    now: Cell<f64>,
    /// By time and order.
    sleepers: RefCell<BTreeMap<(u64, u64), Waker>>,
    order: Cell<u64>,
}

impl Time {
    pub fn now(&self) -> f64 {
        self.now.get()
    }

    pub async fn sleep(&self, seconds: f64) {
        let until = self.now() + seconds.max(0.0);
        let order = self.order.get();
        self.order.set(order + 1);
        // Times are not negative: their bits are in order.
        let key = (until.to_bits(), order);
        poll_fn(|context| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            self.sleepers.borrow_mut().insert(key, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Goes on to the next sleeper. False when nobody sleeps. Those who no longer wait are woken in vain.
    pub fn advance(&self) -> bool {
        let Some(((until, _), waker)) = self.sleepers.borrow_mut().pop_first() else { return false };
        self.now.set(self.now().max(f64::from_bits(until)));
        waker.wake();
        true
    }
}

pub struct Clock(pub Rc<Time>);

impl platform::Clock for Clock {
    fn now(&self) -> f64 {
        self.0.now()
    }

    async fn sleep(&self, seconds: f64) {
        self.0.sleep(seconds).await;
    }

    async fn yield_now(&self) {
        self.0.sleep(1e-6).await;
    }

    async fn computed(&self, work: Compute<'_>) {
        self.0
            .sleep(match work {
                Compute::Forward(_) => FORWARD,
                Compute::Backward(_) => BACKWARD,
                Compute::Loss(_) => LOSS,
                Compute::Update => UPDATE,
                Compute::LocalStep => LOCAL_STEP,
                Compute::EvaluationPass => EVALUATION_PASS,
            })
            .await;
    }
}
