//! Tensor frames that wait for one worker: bounded in number and in bytes.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Frames that may wait. It holds more than the windows of two neighbours, so a pipeline never blocks itself.
const FRAMES: usize = 32;
/// Kibibytes that may wait; a larger frame waits alone.
const KIBIBYTES: u32 = 64 << 10;

/// The way in. While there is no room the sender's socket is not read, so memory stays flat.
#[derive(Debug, Clone)]
pub(crate) struct RelayQueue {
    frames: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
}

/// A frame with the room it takes up until it is dropped.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl RelayQueue {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Queued>) {
        let (frames, queue) = mpsc::channel(FRAMES);
        (Self { frames, room: Arc::new(Semaphore::new(KIBIBYTES as usize)) }, queue)
    }

    /// Waits while the receiver is slow. One that has gone takes nothing.
    pub(crate) async fn send(&self, bytes: Bytes) {
        let size = (bytes.len() as u64).div_ceil(1024).min(u64::from(KIBIBYTES)) as u32;
        let room = tokio::select! {
            room = self.room.clone().acquire_many_owned(size) => room,
            () = self.frames.closed() => return,
        };
        if let Ok(room) = room {
            let _ = self.frames.send(Queued { bytes, _room: room }).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn frames_wait_for_room_in_number_and_in_bytes() {
        let (queue, mut frames) = RelayQueue::new();
        for _ in 0..FRAMES {
            queue.send(Bytes::from_static(b"small")).await;
        }
        assert!(queue.send(Bytes::from_static(b"small")).now_or_never().is_none(), "one too many");
        while frames.try_recv().is_ok() {}

        let large = Bytes::from(vec![0; (KIBIBYTES as usize / 2 + 1) << 10]);
        queue.send(large.clone()).await;
        assert!(queue.send(large.clone()).now_or_never().is_none(), "too many bytes");
        drop(frames.recv().await);
        queue.send(large.clone()).await;
        drop(frames);
        queue.send(large).await; // nobody is there: it does not wait
    }
}
