//! A connection of which is known since when its peer has read nothing of what waits for it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Since when a write waits.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    opened: Instant,
    /// In milliseconds after the connection was opened, plus one; 0: nothing waits.
    since: Arc<AtomicU64>,
}

impl Waiting {
    /// Ends when a write has waited for this long without a byte being taken.
    pub(super) async fn for_long(&self, most: Duration) {
        loop {
            tokio::time::sleep(most / 4).await;
            let since = self.since.load(Ordering::Relaxed);
            if since > 0 && self.opened.elapsed() > Duration::from_millis(since) + most {
                return;
            }
        }
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        match &written {
            Poll::Ready(_) => self.since.store(0, Ordering::Relaxed),
            Poll::Pending if self.since.load(Ordering::Relaxed) == 0 => {
                let now = self.opened.elapsed().as_millis() as u64 + 1;
                self.since.store(now, Ordering::Relaxed);
            }
            Poll::Pending => {}
        }
        written
    }
}

/// A connection whose writes are watched.
pub(super) struct Watched<T> {
    io: T,
    waiting: Waiting,
}

impl<T> Watched<T> {
    pub(super) fn new(io: T) -> (Self, Waiting) {
        let waiting = Waiting { opened: Instant::now(), since: Arc::default() };
        (Self { io, waiting: waiting.clone() }, waiting)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.waiting.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, pieces);
        self.waiting.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
