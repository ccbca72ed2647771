//! Frames that have arrived and were not looked at yet, bounded in bytes.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    task::{Poll, Waker},
};

use protocol::frame::MAX_FRAME;

/// Bytes at which no further frame is taken from the connection, which so holds the sender back.
const FULL: usize = MAX_FRAME;

/// A queue between the future that listens and the one that works, both of one thread.
#[derive(Default)]
pub(crate) struct Inbox {
    frames: RefCell<VecDeque<Vec<u8>>>,
    bytes: Cell<usize>,
    /// Waits for a frame.
    reader: RefCell<Option<Waker>>,
    /// Waits for room.
    writer: RefCell<Option<Waker>>,
}

impl Inbox {
    /// Whether it holds so much that the connection is not read.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.get() >= FULL
    }

    /// Waits until it is not full.
    pub(crate) async fn room(&self) {
        poll_fn(|context| {
            if !self.is_full() {
                return Poll::Ready(());
            }
            *self.writer.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// A frame has arrived.
    pub(crate) fn push(&self, frame: Vec<u8>) {
        self.bytes.set(self.bytes.get() + frame.len());
        self.frames.borrow_mut().push_back(frame);
        wake(&self.reader);
    }

    /// Puts frames back that were taken and are to be looked at later, in their order.
    pub(crate) fn put_back(&self, frames: Vec<Vec<u8>>) {
        for frame in frames.into_iter().rev() {
            self.bytes.set(self.bytes.get() + frame.len());
            self.frames.borrow_mut().push_front(frame);
        }
    }

    /// The next frame, if one has arrived.
    pub(crate) fn pop(&self) -> Option<Vec<u8>> {
        let frame = self.frames.borrow_mut().pop_front()?;
        self.bytes.set(self.bytes.get() - frame.len());
        if !self.is_full() {
            wake(&self.writer);
        }
        Some(frame)
    }

    /// Waits for the next frame.
    pub(crate) async fn next(&self) -> Vec<u8> {
        poll_fn(|context| match self.pop() {
            Some(frame) => Poll::Ready(frame),
            None => {
                *self.reader.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = waker.borrow_mut().take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn frames_come_out_in_order_and_those_put_back_come_first() {
        let inbox = Inbox::default();
        (1..=3).for_each(|frame| inbox.push(vec![frame]));
        let taken = vec![inbox.pop().unwrap(), inbox.pop().unwrap()];
        inbox.put_back(taken);
        let order: Vec<u8> = std::iter::from_fn(|| inbox.pop()).flatten().collect();
        assert_eq!(order, [1, 2, 3]);
        assert!(inbox.next().now_or_never().is_none());
    }

    #[test]
    fn a_full_inbox_takes_nothing_until_something_is_taken_out() {
        let inbox = Inbox::default();
        inbox.push(vec![0; FULL - 1]);
        assert!(inbox.room().now_or_never().is_some());
        inbox.push(vec![0; 1]);
        assert!(inbox.room().now_or_never().is_none());
        inbox.pop();
        assert!(inbox.room().now_or_never().is_some());
    }
}
