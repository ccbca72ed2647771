//! Virtual workers on a virtual clock, around the decisions, the aggregation server and the sessions of a real run.
//!
//! What a worker computes and sends is real, down to the bytes of every frame and file; only how long it takes is made
//! up: by a [`Regime`], or by [`Speed`]s that somebody has measured. Checking and averaging take no time. A seed gives
//! the same run bit for bit. A whole run is one thread, so that nothing depends on how threads take turns; what it
//! computes is spread over the processors only inside the larger kernels and in measurements. [`parallel::map`] plays
//! several runs side by side.
//!
//! | module | is |
//! |---|---|
//! | [`clock`], [`network`] | virtual time; frames and files over links, and the coordinator's store |
//! | [`virtual_worker`] | a worker of a given speed; `platform`: what its session needs; `session`: that session |
//! | [`harness`] | one thread that drives the run's decisions and all sessions |
//! | [`pipeline`], [`block`] | what carries out the decisions of each mode; [`windows`]: where its data come from |
//! | [`disturbance`], `liar`, [`hostile`] | what networks, disks and workers do to a run |
//! | [`regime`], `luck`, [`chance`] | who takes part over what links, as distributions |
//! | [`simulate`] | a run of block mode under a regime |
//! | [`predict`], `stand_in` | the same without training, from measured speeds |
//! | [`parallel`] | independent runs on all processors |
#![deny(missing_docs, unreachable_pub)]

pub mod block;
pub mod chance;
pub mod clock;
pub mod disturbance;
mod error;
pub mod harness;
pub mod hostile;
mod liar;
mod luck;
pub mod network;
pub mod parallel;
pub mod pipeline;
mod platform;
pub mod predict;
pub mod regime;
mod session;
pub mod simulate;
mod stand_in;
pub mod virtual_worker;
pub mod windows;

pub use block::BlockSetup;
pub use error::SimulationError;
pub use hostile::Behaviour;
pub use predict::{Prediction, predict};
pub use regime::{REGIMES, Regime, Speed};
pub use simulate::{Outcome, Plan, run};
pub use windows::Windows;
