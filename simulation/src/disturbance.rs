//! What a network, a worker or a disk does to a run.

/// Something that happens once so many frames have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disturbance {
    /// Frames that have arrived before.
    pub after: u64,
    /// What happens.
    pub what: What,
    /// Chooses the worker, among those that are there.
    pub whom: u64,
}

/// What happens to a run. Lengths are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Another worker comes.
    Join,
    /// A worker is killed; its connection closes.
    Kill,
    /// A connection is cut; its worker connects again.
    Cut,
    /// A connection carries nothing for so long.
    HoldUp(u32),
    /// A worker's next frame comes twice.
    Double,
    /// A worker's next two frames change places.
    Swap,
    /// A bit of a worker's next tensor or file flips.
    Garble,
    /// A worker's next frame is lost, and nobody notices.
    Lose,
    /// A worker hears nothing of what it is sent, for so long.
    Deaf(u32),
    /// Nothing but heartbeats comes of a worker, for so long.
    Silent(u32),
    /// A worker is killed once it has said that its stage or its delta is ready.
    DiesWhenReady,
    /// A worker's next connections, so many, are lost right after their Hello.
    Flap(u32),
    /// A worker says of its speed, its times and its losses whatever it likes from now on.
    Lie,
    /// The disk takes nothing for so long.
    FullDisk(u32),
    /// The coordinator is killed, and started again after so long.
    KillCoordinator(u32),
}
