//! A worker's session with the coordinator: the same natively, in a tab, and in the simulator.
//!
//! [`run`] connects, measures the device, takes work, trains, and connects again when the connection is lost. What it
//! needs of the place it runs in comes through the traits of [`platform`].
//!
//! | module | is |
//! |---|---|
//! | [`platform`] | what a worker needs of the place it runs in: network, clock, store, reporter |
//! | `session` | connects, and connects again; `backoff` says when, `session_state` is what stays |
//! | `connection` | the handshake, then frames in and work out; `line` carries frames and heartbeats and notices silence, `inbox` holds what has arrived |
//! | `connection::{measure, pipeline, block}` | the messages of the benchmark and of the two modes |
//! | `pipeline_task`, [`schedule`] | pipeline mode: one stage of one plan, and what it does next |
//! | `text_caches` | pipeline mode: keys and values of texts that the stages write |
//! | `block_task`, `block_state` | block mode: one round, and what is kept between rounds |
//! | `evaluation_task` | block mode: the whole model on held-out text |
//! | [`devices`], [`link`] | the self-benchmark of the device and of its link |
//! | `transfer` | blobs in pieces; `snapshot_cache` keeps the worker's own |
//! | `checks` | what a run and an assignment must satisfy before they are tried |
//! | `leave`, `error` | the wish to leave; what goes wrong, and how a session ends |
//!
//! Tasks take frames and give what is to be sent; only connections and transfers wait for the network.
#![deny(missing_docs, unreachable_pub)]

mod backoff;
mod block_state;
mod block_task;
mod checks;
mod connection;
pub mod devices;
mod error;
mod evaluation_task;
mod inbox;
mod leave;
mod line;
pub mod link;
mod pipeline_task;
pub mod platform;
pub mod schedule;
mod session;
mod session_state;
mod snapshot_cache;
mod text_caches;
mod transfer;

pub use error::End;
pub use leave::Leave;
pub use session::run;
