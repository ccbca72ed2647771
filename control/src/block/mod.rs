//! Block mode: rounds in which workers train blocks apart, and the coordinator averages what they learned.
//!
//! [`machine`] decides, as [`crate::run::machine`] does in pipeline mode, with the same events and actions;
//! [`placement`] and [`deadline`] are parts of its judgement. [`keeper`] holds the weights: it checks deltas and
//! averages them. None of them knows a clock, a socket or a disk; the shell, the simulator and tests drive them.

pub mod deadline;
pub mod evaluation;
pub mod flight;
pub mod keeper;
pub mod local_steps;
pub mod machine;
pub mod manifest;
pub mod placement;
pub mod recheck;
pub mod refusal;
pub mod seeds;
pub mod windows;

pub use keeper::Keeper;
pub use manifest::{Published, RoundManifest};
pub use refusal::DeltaRefusal;
