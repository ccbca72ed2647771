//! `cargo xtask soak`: a coordinator among workers and strangers who come and go.

use anyhow::Result;

use crate::{process, workspace::Workspace};

/// Builds the coordinator, without new pages, and runs the program `soak` of the package `tests`.
///
/// # Errors
///
/// What does not build, or what grew beyond its bound.
pub fn soak(workspace: &Workspace, minutes: f64) -> Result<()> {
    process::run(workspace.cargo().args(["build", "--bin", "cohort"]))?;
    let mut command = workspace.cargo();
    command
        .args(["run", "--bin", "soak", "--", &minutes.to_string()])
        .env("COHORT_BIN", workspace.cohort())
        // glibc keeps freed memory apart for each thread; with one arena, memory is what is held.
        .env("MALLOC_ARENA_MAX", "1");
    process::run(&mut command)
}
