//! The harness of the end-to-end tests: the real coordinator, real workers over real sockets, real Chromium.
//!
//! Everything started here ends with the value that stands for it, and shows what it printed when a test fails.

// Errors are anyhow's here, and say in words what went wrong.
#![allow(clippy::missing_errors_doc)]

pub mod api;
pub mod browser;
pub mod client;
pub mod cohort;
pub mod coordinator;
pub mod curves;
pub mod models;
pub mod process;
pub mod proxy;
pub mod resources;
pub mod runs;
pub mod shaped_proxy;
pub mod tab;
pub mod wait;
pub mod webdriver;
pub mod weights;
pub mod worker;

pub use browser::Browser;
pub use client::Client;
pub use coordinator::Coordinator;
pub use tab::Tab;
pub use wait::{LIMIT, wait_until};
pub use worker::NativeWorker;

/// Holds the computer for one test: two that train at once would wait for each other on a small one.
pub async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static COMPUTER: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    COMPUTER.lock().await
}
