//! Work on the IO runtime that ends when nobody waits for it any more.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
};

/// A task of the IO runtime; aborted when dropped.
pub(crate) struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    pub(crate) fn spawn(io: &Handle, future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(io.spawn(future))
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
