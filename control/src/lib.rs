//! The decisions of a run, apart from all IO: time and events come in, actions go out.
//!
//! ```text
//! run.rs         Run<M>: takes an event, lets the mode decide, gives actions
//! core.rs        RunCore: what both modes share; Turn: one event being taken in
//! event.rs       what comes in, in both modes          action.rs   what goes out
//! record.rs      lines of the event log                settings.rs what does not change
//! roster.rs      the workers                           admission.rs who is let in
//! plausible.rs   what a device cannot be               curve.rs    the learning curve, bounded
//! pipeline/      pipeline mode: plans, steps, snapshots, and the relay that judges frames
//! block/         block mode: rounds, deadlines, placement, evaluation
//! ```
//!
//! Nothing here knows a clock, a socket, a disk or a tensor: the crate depends on `protocol` alone, and the compiler
//! keeps it so. The coordinator's runtime, the tests and the simulator drive the same code.

#![deny(missing_docs, unreachable_pub)]

pub mod action;
mod admission;
pub mod block;
pub mod core;
pub mod curve;
pub mod event;
pub mod learning_rate;
pub mod mix;
pub mod pipeline;
mod plausible;
pub mod record;
pub mod roster;
pub mod run;
pub mod settings;

pub use action::Action;
pub use event::{Command, Event};
pub use record::Record;
pub use run::{Mode, Run};
pub use settings::Settings;
