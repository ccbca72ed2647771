//! What a session needs of its place, in the virtual world.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    ops::Range,
    rc::Rc,
    task::Poll,
};

use engine::session::host::{self, HostError, Put};
use protocol::blob::BlobHash;

use super::{Happening, Shared};

/// One in this many requests for a blob fails.
const FAILING: u64 = 40;

async fn sleep(world: &Shared, seconds: f64) {
    let until = world.borrow().now + seconds;
    let mut asked = false;
    poll_fn(|context| {
        let mut world = world.borrow_mut();
        if world.now >= until {
            return Poll::Ready(());
        }
        // Polled again by something else: the first waker still stands for the whole task.
        if !asked {
            asked = true;
            world.at(until, Happening::Wake(context.waker().clone()));
        }
        Poll::Pending
    })
    .await;
}

pub struct Network {
    world: Shared,
    /// The connection in use, for the disturber.
    current: Rc<RefCell<Option<u64>>>,
}

impl Network {
    pub fn new(world: Shared, current: Rc<RefCell<Option<u64>>>) -> Self {
        Self { world, current }
    }
}

impl host::Network for Network {
    type Transport = Transport;

    async fn connect(&self) -> Result<Transport, HostError> {
        sleep(&self.world, 0.01).await;
        let id = self.world.borrow_mut().connect();
        *self.current.borrow_mut() = id;
        match id {
            Some(id) => Ok(Transport { world: self.world.clone(), id }),
            None => Err(HostError("nobody answers".into())),
        }
    }
}

pub struct Transport {
    world: Shared,
    id: u64,
}

fn closed() -> HostError {
    HostError("the connection was lost".into())
}

impl host::Transport for Transport {
    async fn send(&self, frame: Vec<u8>) -> Result<(), HostError> {
        match self.world.borrow_mut().send_up(self.id, frame) {
            true => Ok(()),
            false => Err(closed()),
        }
    }

    async fn receive(&self) -> Result<Vec<u8>, HostError> {
        poll_fn(|context| {
            let mut world = self.world.borrow_mut();
            let Some(connection) = world.connections.get_mut(&self.id) else {
                return Poll::Ready(Err(closed()));
            };
            match connection.inbox.pop_front() {
                Some(bytes) => Poll::Ready(Ok(bytes)),
                None if connection.closed => Poll::Ready(Err(closed())),
                None => {
                    connection.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn try_receive(&self) -> Result<Option<Vec<u8>>, HostError> {
        let mut world = self.world.borrow_mut();
        let connection = world.connections.get_mut(&self.id).ok_or_else(closed)?;
        match connection.inbox.pop_front() {
            Some(bytes) => Ok(Some(bytes)),
            None if connection.closed => Err(closed()),
            None => Ok(None),
        }
    }

    async fn finish(&self) {}
}

impl Drop for Transport {
    fn drop(&mut self) {
        // A worker that is killed is dropped while the disturber holds the world, and cuts the connection itself.
        if let Ok(mut world) = self.world.try_borrow_mut()
            && world.connections.get(&self.id).is_some_and(|c| !c.closed)
        {
            world.cut(self.id);
        }
    }
}

/// Moves a little with every look, so that benchmarks see time pass.
pub struct Clock {
    world: Shared,
    looks: Cell<u64>,
}

impl Clock {
    pub fn new(world: Shared) -> Self {
        Self { world, looks: Cell::new(0) }
    }
}

impl host::Clock for Clock {
    fn now(&self) -> f64 {
        self.looks.set(self.looks.get() + 1);
        self.world.borrow().now + 1e-5 * self.looks.get() as f64
    }

    async fn sleep(&self, seconds: f64) {
        sleep(&self.world, seconds).await;
    }

    async fn breathe(&self) {
        sleep(&self.world, 1e-3).await;
    }
}

pub struct Blobs {
    world: Shared,
}

impl Blobs {
    pub fn new(world: Shared) -> Self {
        Self { world }
    }

    async fn request(&self) -> Result<(), HostError> {
        sleep(&self.world, 0.02).await;
        let mut world = self.world.borrow_mut();
        if world.is_down() || world.draw(FAILING) == 0 {
            return Err(HostError("the request failed".into()));
        }
        Ok(())
    }
}

impl host::Blobs for Blobs {
    async fn get(&self, _: &str, hash: BlobHash, range: Range<u64>) -> Result<Vec<u8>, HostError> {
        self.request().await?;
        let world = self.world.borrow();
        let blob = world.blobs.get(&hash).ok_or_else(|| HostError("there is no such blob".into()))?;
        Ok(blob[range.start as usize..range.end as usize].to_vec())
    }

    async fn put(
        &self,
        _: &str,
        hash: BlobHash,
        first: u64,
        total: u64,
        piece: &[u8],
    ) -> Result<Put, HostError> {
        self.request().await?;
        let mut world = self.world.borrow_mut();
        let stored = world.partial.entry(hash).or_default();
        if stored.len() as u64 != first {
            let at = stored.len() as u64;
            return Ok(if at == total { Put::Whole } else { Put::GoOnAt(at) });
        }
        stored.extend_from_slice(piece);
        if stored.len() as u64 == total {
            let blob = stored.clone();
            assert_eq!(BlobHash::of(&blob), hash);
            world.blobs.insert(hash, blob);
            return Ok(Put::Whole);
        }
        Ok(Put::More)
    }
}
