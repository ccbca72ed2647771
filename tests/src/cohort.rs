//! The program under test, run to its end.

use std::{env, ffi::OsStr, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{process::Command, time::timeout};

/// The binary named by COHORT_BIN; by default the one beside this test, in `target/debug`.
pub fn binary() -> Result<PathBuf> {
    if let Some(named) = env::var_os("COHORT_BIN") {
        return Ok(PathBuf::from(named));
    }
    let test = env::current_exe()?;
    let folder = test.ancestors().find(|folder| folder.ends_with("debug") || folder.ends_with("release"));
    let binary = folder
        .context("set COHORT_BIN to the program under test")?
        .join(format!("cohort{}", env::consts::EXE_SUFFIX));
    if !binary.is_file() {
        bail!("{} is missing: run `cargo build --bin cohort`, or set COHORT_BIN", binary.display());
    }
    Ok(binary)
}

pub struct Finished {
    /// None when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `cohort ARGUMENTS` to its end.
pub async fn run<A: AsRef<OsStr>>(arguments: &[A], limit: Duration) -> Result<Finished> {
    let output = Command::new(binary()?)
        .args(arguments)
        .stdin(Stdio::null())
        .env("RUST_BACKTRACE", "0")
        .kill_on_drop(true)
        .output();
    let output = timeout(limit, output).await.with_context(|| {
        let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        format!("`cohort {}` did not end within {} s", words.join(" "), limit.as_secs())
    })??;
    Ok(Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
