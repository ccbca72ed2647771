//! By which numbers copies of deltas are known: of the newest, so that a run may last for ever.

use std::collections::{HashMap, VecDeque};

use protocol::{blob::BlobHash, worker_id::WorkerId};

/// Hashes of the numbers of deltas, and who sent them first.
pub(super) struct Bodies {
    most: usize,
    senders: HashMap<BlobHash, WorkerId>,
    /// From the oldest to the newest.
    order: VecDeque<BlobHash>,
}

impl Bodies {
    /// Of the newest `most` deltas.
    pub(super) fn new(most: usize) -> Self {
        Self { most, senders: HashMap::new(), order: VecDeque::new() }
    }

    /// Who sent these numbers first.
    pub(super) fn sender(&self, body: BlobHash) -> Option<WorkerId> {
        self.senders.get(&body).copied()
    }

    /// Notes who sent these numbers.
    pub(super) fn insert(&mut self, body: BlobHash, worker: WorkerId) {
        if self.senders.insert(body, worker).is_some() {
            return;
        }
        self.order.push_back(body);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.senders.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_known_and_no_more_are_kept() {
        let mut bodies = Bodies::new(100);
        let body = |number: u32| BlobHash::of(&number.to_le_bytes());
        for number in 0..1000 {
            bodies.insert(body(number), WorkerId(u64::from(number)));
            bodies.insert(body(number), WorkerId(u64::from(number)));
        }
        assert_eq!((bodies.senders.len(), bodies.order.len()), (100, 100));
        assert_eq!(bodies.sender(body(900)), Some(WorkerId(900)));
        assert_eq!(bodies.sender(body(899)), None);
    }
}
