//! The wish to leave: from a person, or from the program that ends.

use futures::{FutureExt, channel::oneshot, future::Shared};

/// Asked from outside to leave; can be waited for, again and again.
pub struct Leave(Shared<oneshot::Receiver<()>>);

impl Leave {
    /// The handle, and the sender that fires it (by sending, or by being dropped).
    pub fn new() -> (oneshot::Sender<()>, Leave) {
        let (sender, receiver) = oneshot::channel();
        (sender, Leave(receiver.shared()))
    }

    /// Waits until asked. A dropped sender counts as asking: nobody is left who could.
    pub(crate) async fn asked(&self) {
        let _ = self.0.clone().await;
    }
}
