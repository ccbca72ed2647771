//! `cohort work`: a native worker.

use anyhow::Result;

use crate::{cohort, process::Process};

pub struct NativeWorker {
    pub process: Process,
}

impl NativeWorker {
    /// Joins the run at this address, computing on the CPU.
    pub fn start(url: &str, name: &str, arguments: &[&str]) -> Result<Self> {
        let process = Process::start(&format!("worker {name}"), &cohort::binary()?, |command| {
            command.args(["work", url, "--backend", "cpu", "--name", name]).args(arguments);
        })?;
        Ok(Self { process })
    }

    /// As many as asked, named `native-1` and so on.
    pub fn start_many(url: &str, count: usize) -> Result<Vec<Self>> {
        (1..=count).map(|number| Self::start(url, &format!("native-{number}"), &[])).collect()
    }
}
