//! A worker's own parts of the last snapshots: what it has itself it does not download again.

use std::rc::Rc;

use protocol::blob::BlobHash;

/// Parts of the newest snapshot that counts and of those after it. Outlives connections: after a lost one, or a
/// restart of the coordinator, a part whose hash is asked for is simply there.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache {
    /// Oldest first.
    parts: Vec<(u64, BlobHash, Rc<Vec<u8>>)>,
}

/// Each holds weights and moments: more than the last two would be memory for nothing.
const MOST: usize = 2;

impl SnapshotCache {
    /// Keep the part of the snapshot after `steps_done` steps.
    pub(crate) fn keep(&mut self, steps_done: u64, hash: BlobHash, bytes: Rc<Vec<u8>>) {
        // Steps done again after a rollback have parts of their own.
        self.parts.retain(|(steps, ..)| *steps < steps_done);
        self.parts.push((steps_done, hash, bytes));
        if self.parts.len() > MOST {
            self.parts.remove(0);
        }
    }

    /// The snapshot after `steps_done` steps counts: nobody goes back further.
    pub(crate) fn accepted(&mut self, steps_done: u64) {
        if self.parts.iter().any(|(steps, ..)| *steps == steps_done) {
            self.parts.retain(|(steps, ..)| *steps >= steps_done);
        }
    }

    pub(crate) fn get(&self, hash: BlobHash) -> Option<Rc<Vec<u8>>> {
        self.parts.iter().find(|(_, kept, _)| *kept == hash).map(|(_, _, bytes)| bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> (BlobHash, Rc<Vec<u8>>) {
        (BlobHash::of(text.as_bytes()), Rc::new(text.as_bytes().to_vec()))
    }

    #[test]
    fn the_accepted_part_and_later_ones_are_there_and_older_ones_are_not() {
        let mut cache = SnapshotCache::default();
        let parts = ["a", "b", "c"].map(part);
        cache.keep(10, parts[0].0, parts[0].1.clone());
        cache.keep(20, parts[1].0, parts[1].1.clone());
        assert!(cache.get(parts[0].0).is_some(), "20 does not count yet: the run may go back to 10");
        cache.accepted(20);
        assert!(cache.get(parts[0].0).is_none());
        cache.accepted(15);
        assert!(cache.get(parts[1].0).is_some());
        cache.keep(30, parts[2].0, parts[2].1.clone());
        assert_eq!(cache.get(parts[2].0).as_deref(), Some(&b"c".to_vec()));
    }

    #[test]
    fn after_a_rollback_the_parts_of_undone_steps_go() {
        let mut cache = SnapshotCache::default();
        let parts = ["a", "b", "c"].map(part);
        cache.keep(10, parts[0].0, parts[0].1.clone());
        cache.keep(20, parts[1].0, parts[1].1.clone());
        cache.keep(20, parts[2].0, parts[2].1.clone());
        assert!(cache.get(parts[1].0).is_none());
        assert!(cache.get(parts[0].0).is_some() && cache.get(parts[2].0).is_some());
    }
}
