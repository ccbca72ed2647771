//! What a worker keeps from one connection to the next.

use std::rc::Rc;

use crate::{block_state::BlockState, devices::Devices, snapshot_cache::SnapshotCache, transfer::PieceSize};

/// What a worker keeps from one connection to the next.
pub(crate) struct SessionState {
    pub(crate) devices: Devices,
    pub(crate) snapshots: SnapshotCache,
    pub(crate) block: BlockState,
    pub(crate) piece_size: Rc<PieceSize>,
}

impl SessionState {
    /// Nothing but the devices, as before the first connection.
    pub(crate) fn new(devices: Devices) -> Self {
        Self {
            devices,
            snapshots: SnapshotCache::default(),
            block: BlockState::default(),
            piece_size: Rc::default(),
        }
    }
}
