//! The one interpreter of a run's actions: events from the network come in, and what the run decides is done.
//!
//! ```text
//! interpreter.rs   the loop: events to the run, common actions to the network, the log and the pages
//! pipeline.rs      what pipeline mode alone has done: batches, routes, snapshots
//! block.rs         what block mode alone has done: rounds, deltas, evaluations
//! ```

pub(crate) mod block;
mod interpreter;
pub(crate) mod pipeline;
mod snapshot_parts;

pub use interpreter::Ending;
pub(crate) use interpreter::{Interpreter, ModeIo, Pages};
