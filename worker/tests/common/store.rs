//! The coordinator's store, which may refuse, fail, or never answer.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    ops::Range,
    rc::Rc,
};

use protocol::blob::{BlobHash, BlobRef};
use worker::platform::{self, Got, Later, PlatformError, Put};

use super::clock::Time;

/// Seconds of a request.
pub const REQUEST: f64 = 0.1;

pub struct Store {
    time: Rc<Time>,
    blobs: RefCell<HashMap<BlobHash, Vec<u8>>>,
    partial: RefCell<HashMap<BlobHash, Vec<u8>>>,
    /// Largest piece that is taken, in bytes.
    pub largest_piece: Cell<u64>,
    /// How many of the next requests are answered so.
    pub asks_to_wait: Cell<Option<(u32, Later)>>,
    /// Requests are never answered.
    pub stalled: Cell<bool>,
    /// What is sent is longer than what was asked for.
    pub overflows: Cell<bool>,
    pub gets: Cell<u32>,
    pub puts: Cell<u32>,
}

impl Store {
    pub fn new(time: Rc<Time>) -> Self {
        Self {
            time,
            blobs: RefCell::default(),
            partial: RefCell::default(),
            largest_piece: Cell::new(u64::MAX),
            asks_to_wait: Cell::new(None),
            stalled: Cell::new(false),
            overflows: Cell::new(false),
            gets: Cell::new(0),
            puts: Cell::new(0),
        }
    }

    /// Keeps a file.
    pub fn keep(&self, bytes: &[u8]) -> BlobRef {
        let blob = BlobRef::of(bytes);
        self.blobs.borrow_mut().insert(blob.hash, bytes.to_vec());
        blob
    }

    /// Keeps other bytes than the hash says.
    pub fn keep_wrong(&self, bytes: &[u8]) -> BlobRef {
        let blob = BlobRef::of(bytes);
        self.blobs.borrow_mut().insert(blob.hash, vec![0; bytes.len()]);
        blob
    }

    pub fn get(&self, blob: BlobRef) -> Option<Vec<u8>> {
        self.blobs.borrow().get(&blob.hash).cloned()
    }

    async fn request(&self) {
        self.time.sleep(REQUEST).await;
        if self.stalled.get() {
            std::future::pending::<()>().await;
        }
    }

    fn asks_to_wait(&self) -> Option<Later> {
        let (requests, later) = self.asks_to_wait.get()?;
        self.asks_to_wait.set((requests > 1).then_some((requests - 1, later)));
        Some(later)
    }
}

pub struct Blobs(pub Rc<Store>);

impl platform::Blobs for Blobs {
    async fn get(&self, _: &str, hash: BlobHash, range: Range<u64>) -> Result<Got, PlatformError> {
        let Self(store) = self;
        store.gets.set(store.gets.get() + 1);
        store.request().await;
        if let Some(later) = store.asks_to_wait() {
            return Ok(Got::Later(later));
        }
        let blobs = store.blobs.borrow();
        let blob = blobs.get(&hash).ok_or_else(|| PlatformError("there is no such blob".into()))?;
        let mut piece = blob[range.start as usize..(range.end as usize).min(blob.len())].to_vec();
        if store.overflows.get() {
            piece.extend([0; 1000]);
        }
        Ok(Got::Bytes(piece))
    }

    async fn put(
        &self,
        _: &str,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, PlatformError> {
        let Self(store) = self;
        store.puts.set(store.puts.get() + 1);
        store.request().await;
        if let Some(later) = store.asks_to_wait() {
            return Ok(Put::Later(later));
        }
        if piece.len() as u64 > store.largest_piece.get() {
            return Ok(Put::TooLarge);
        }
        let mut partial = store.partial.borrow_mut();
        let stored = partial.entry(hash).or_default();
        if stored.len() as u64 != first {
            return Ok(Put::GoOnAt(stored.len() as u64));
        }
        stored.extend_from_slice(piece);
        if (stored.len() as u64) < total {
            return Ok(Put::More);
        }
        let whole = partial.remove(&hash).unwrap();
        assert_eq!(BlobHash::of(&whole), hash);
        store.blobs.borrow_mut().insert(hash, whole);
        Ok(Put::Whole)
    }
}
