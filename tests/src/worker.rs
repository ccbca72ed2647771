//! `cohort work`: a native worker.

use anyhow::Result;

use crate::{cohort, process::Process};

pub struct NativeWorker {
    pub name: String,
    pub process: Process,
}

impl NativeWorker {
    /// Joins the run at this address, computing on the CPU.
    pub fn start(url: &str, name: &str, arguments: &[&str]) -> Result<Self> {
        let process = Process::start(&format!("worker {name}"), &cohort::binary()?, |command| {
            command.args(["work", url, "--backend", "cpu", "--name", name]).args(arguments);
        })?;
        Ok(Self { name: name.to_owned(), process })
    }
}
