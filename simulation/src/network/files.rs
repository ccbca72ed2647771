//! The coordinator's store, and requests for its files over the virtual network.

use std::{rc::Rc, time::Duration};

use protocol::blob::{BlobHash, BlobRef};
use worker::platform::{PlatformError, Put};

use super::{Endpoint, Network, flip, leave};
use crate::clock::seconds;

impl Network {
    /// A file of the store.
    pub fn file(&self, hash: BlobHash) -> Option<&Rc<Vec<u8>>> {
        self.files.get(&hash)
    }

    /// Puts a file into the store; the coordinator's own take no time.
    pub fn keep(&mut self, bytes: Vec<u8>) -> BlobRef {
        let blob = BlobRef::of(&bytes);
        self.files.insert(blob.hash, Rc::new(bytes));
        blob
    }

    /// Takes a file out of the store.
    pub fn forget(&mut self, hash: BlobHash) {
        self.files.remove(&hash);
    }

    /// When a request is answered that takes so many bytes up and down.
    pub(crate) fn request(&mut self, endpoint: usize, up: u64, down: u64) -> Duration {
        let now = self.now();
        let end = &mut self.endpoints[endpoint];
        let Endpoint { link, slower, .. } = *end;
        let way = seconds(link.latency * slower);
        let asked = if up > 0 { leave(&mut end.lanes.files_up, now, up, link.up, slower) } else { now } + way;
        let answered =
            if down > 0 { leave(&mut end.lanes.files_down, asked, down, link.down, slower) } else { asked };
        answered + way
    }

    /// Whether a request reaches the coordinator, now that its time has come.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn answer(&mut self) -> Result<(), PlatformError> {
        let fails = self.weather.failing.is_some_and(|share| self.draws.below(share) == 0);
        if fails || !self.open {
            return Err(PlatformError("the request failed".into()));
        }
        Ok(())
    }

    /// A piece of a file has arrived at the store.
    ///
    /// # Errors
    /// When the whole is not what its hash says.
    pub(crate) fn put(
        &mut self,
        endpoint: usize,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, PlatformError> {
        if self.files.contains_key(&hash) {
            return Ok(Put::Whole);
        }
        let stored = self.partial.entry(hash).or_default();
        if stored.len() as u64 != first {
            return Ok(Put::GoOnAt(stored.len() as u64));
        }
        stored.extend_from_slice(piece);
        if std::mem::take(&mut self.endpoints[endpoint].garble) {
            flip(stored);
        }
        if (stored.len() as u64) < total {
            return Ok(Put::More);
        }
        let whole = self.partial.remove(&hash).unwrap_or_default();
        if BlobHash::of(&whole) != hash {
            return Err(PlatformError("the file does not match its hash".into()));
        }
        self.files.insert(hash, Rc::new(whole));
        Ok(Put::Whole)
    }
}
