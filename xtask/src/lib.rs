//! What `cargo xtask` does. A library, so that the end-to-end tests share [`chromium`] with it.

// Errors are anyhow's here, and say in words what went wrong.
#![allow(clippy::missing_errors_doc)]

pub mod bench;
pub mod bundle;
pub mod chromium;
pub mod fuzz;
pub mod mirror;
pub mod pages;
pub mod precompress;
pub mod process;
pub mod python;
pub mod run;
pub mod setup;
pub mod soak;
pub mod stamp;
pub mod system;
pub mod test;
pub mod tools;
pub mod workspace;
