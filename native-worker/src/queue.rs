//! A queue of frames that is bounded in bytes: a full one stops the sender.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// KiB of frames that may wait.
const ROOM: u32 = 64 << 10;

/// A frame that waits, or is being sent; it takes its room until it is dropped.
pub(crate) struct Queued {
    pub(crate) frame: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

/// The end that frames go in at.
#[derive(Clone)]
pub(crate) struct Sender {
    room: Arc<Semaphore>,
    frames: mpsc::UnboundedSender<Queued>,
}

/// The end that frames come out of.
pub(crate) type Receiver = mpsc::UnboundedReceiver<Queued>;

/// An empty queue.
pub(crate) fn queue() -> (Sender, Receiver) {
    let (frames, receiver) = mpsc::unbounded_channel();
    (Sender { room: Arc::new(Semaphore::new(ROOM as usize)), frames }, receiver)
}

impl Sender {
    /// Waits for room. False when nobody takes frames any more.
    pub(crate) async fn send(&self, frame: Vec<u8>) -> bool {
        // A frame larger than all the room waits until it is alone.
        let kib = (frame.len() as u64 >> 10).clamp(1, u64::from(ROOM)) as u32;
        match self.room.clone().acquire_many_owned(kib).await {
            Ok(room) => self.frames.send(Queued { frame, _room: room }).is_ok(),
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_full_queue_waits_and_a_frame_larger_than_all_of_it_passes_alone() {
        let (sender, mut receiver) = queue();
        assert_eq!(sender.send(vec![0; 128 << 20]).now_or_never(), Some(true));
        assert_eq!(sender.send(vec![0; 1]).now_or_never(), None);
        drop(receiver.try_recv());
        assert_eq!(sender.send(vec![0; 1]).now_or_never(), Some(true));
        drop(receiver);
        assert_eq!(sender.send(vec![0; 1]).now_or_never(), Some(false));
    }
}
