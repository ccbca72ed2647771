//! The run: a pure state machine and its parts. No clock, no socket, no disk.

pub mod door;
pub mod event;
pub mod machine;
pub mod relay;
pub mod roster;
pub mod snapshot;
pub mod step;
