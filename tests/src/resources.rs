//! What Linux says of a process: its memory and processor time, and how many files it may open.

use std::fs;

use anyhow::{Context, Result, bail};

/// Of the clock in `/proc/PID/stat`, in Hz: what Linux shows to programs on every machine.
const TICKS: f64 = 100.0;

/// Bytes in memory.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// At this moment.
    pub now: u64,
    /// The most it ever was.
    pub most: u64,
}

/// Memory of a process.
///
/// # Errors
/// When there is no such process, or no Linux.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = read(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kilobytes.map(|n| n << 10).with_context(|| format!("/proc/{pid}/status has no {name}"))
    };
    Ok(Memory { now: field("VmRSS:")?, most: field("VmHWM:")? })
}

/// Seconds of computing since a process started, in user mode and in the kernel.
///
/// # Errors
/// As for [`memory`].
pub fn processor_seconds(pid: u32) -> Result<f64> {
    let stat = read(format!("/proc/{pid}/stat"))?;
    let ticks = |place: usize| after_name(&stat)?.get(place)?.parse::<f64>().ok();
    let (user, kernel) = ticks(11).zip(ticks(12)).with_context(|| format!("/proc/{pid}/stat: {stat}"))?;
    Ok((user + kernel) / TICKS)
}

/// Files and connections that a process has open.
///
/// # Errors
/// As for [`memory`].
pub fn open_files(pid: u32) -> Result<usize> {
    let folder = format!("/proc/{pid}/fd");
    Ok(fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?.count())
}

/// Checks how many files a program may have open.
///
/// # Errors
/// When this program, and with it those it starts, may not have as many files open.
pub fn ensure_files(wanted: u64) -> Result<()> {
    let limits = read("/proc/self/limits".to_owned())?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()).context("no limit of open files")?;
    match soft.parse::<u64>() {
        Ok(limit) if limit < wanted => {
            bail!("only {limit} files may be open, {wanted} are needed: run `ulimit -n {wanted}` before")
        }
        _ => Ok(()), // enough, or unlimited
    }
}

/// The fields of a `stat` from the state on: the name before may itself hold spaces and parentheses.
fn after_name(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace().collect())
}

fn read(path: String) -> Result<String> {
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}: this measures on Linux only"))
}
