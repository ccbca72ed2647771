//! `cargo xtask run`: a coordinator in the foreground and, for a demo, tabs of a browser without a window.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::{chromium, pages, process, setup, system, workspace::Workspace};

enum Event {
    /// A line that the coordinator printed.
    Line(String),
    Ended(ExitStatus),
    /// Ctrl-C, or asked to terminate.
    Interrupted,
}

pub fn run(workspace: &Workspace, demo: Option<u32>, serve: &[OsString]) -> Result<()> {
    setup::for_building(workspace)?;
    let tabs = demo.unwrap_or(0);
    let browser = if tabs > 0 { Some(setup::chromium(workspace)?) } else { None };
    build(workspace)?;

    let mut command = Command::new(workspace.cohort());
    command.arg("serve").args(serve).stdin(Stdio::null()).stdout(Stdio::piped());
    if tabs > 0 {
        command.args(["--start-with", &tabs.to_string()]);
    }
    eprintln!("$ {}", process::words(&command));
    let mut coordinator =
        process::in_its_own_group(&mut command).spawn().context("cannot start the coordinator")?;
    let id = coordinator.id();

    let (sender, events) = mpsc::channel();
    let interrupted = sender.clone();
    ctrlc::set_handler(move || drop(interrupted.send(Event::Interrupted)))
        .context("cannot listen for Ctrl-C")?;
    let stdout = coordinator.stdout.take().context("the coordinator has no output")?;
    std::thread::spawn(move || watch(coordinator, BufReader::new(stdout), &sender));

    let mut open = Vec::new();
    for event in events {
        match event {
            Event::Line(line) => {
                println!("{line}");
                if let (Some(browser), Some(address)) = (&browser, listening_address(&line)) {
                    for tab in 1..=tabs {
                        open.push(Tab::open(browser, &join_link(&address))?);
                        eprintln!("opened tab {tab} of {tabs}");
                    }
                }
            }
            // It finishes what must be on disk, and then it has ended. A second Ctrl-C tells it to hurry.
            Event::Interrupted => process::interrupt(id),
            Event::Ended(status) => {
                drop(open);
                return ended(status);
            }
        }
    }
    bail!("the coordinator's end went unseen")
}

/// The coordinator's binary with the pages inside.
pub fn build(workspace: &Workspace) -> Result<()> {
    pages::build(workspace)?;
    process::run(workspace.cargo().args(["build", "--bin", "cohort"]))
}

fn watch(mut coordinator: Child, stdout: impl BufRead, events: &mpsc::Sender<Event>) {
    for line in stdout.lines().map_while(Result::ok) {
        events.send(Event::Line(line)).ok();
    }
    if let Ok(status) = coordinator.wait() {
        events.send(Event::Ended(status)).ok();
    }
}

fn ended(status: ExitStatus) -> Result<()> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => bail!("the coordinator ended with exit code {code}"),
        None => bail!("the coordinator was ended by a signal"),
    }
}

/// "http://127.0.0.1:8080" of "listening on http://0.0.0.0:8080": this computer's own way to it. Also what
/// makes WebGPU available, which browsers give to secure addresses and to this computer only.
fn listening_address(line: &str) -> Option<String> {
    let address = line.strip_prefix("listening on ")?.trim();
    Some(address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:"))
}

fn join_link(address: &str) -> String {
    format!("{}/?join=1", address.trim_end_matches('/'))
}

/// One browser with one tab; closed, and its profile removed, when dropped.
struct Tab {
    browser: Child,
    _profile: TempDir,
}

impl Tab {
    fn open(browser: &PathBuf, link: &str) -> Result<Self> {
        let profile = tempfile::Builder::new().prefix("cohort-tab-").tempdir()?;
        let mut command = Command::new(browser);
        command
            .args(chromium::flags(profile.path(), system::is_root()))
            .arg(link)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let browser = process::in_its_own_group(&mut command)
            .spawn()
            .with_context(|| format!("cannot start {}", browser.display()))?;
        Ok(Self { browser, _profile: profile })
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        // The whole group: a browser is many processes, and what lives on would write into the profile again.
        process::kill_group(self.browser.id());
        self.browser.kill().ok();
        self.browser.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_joins_over_this_computers_own_address() {
        let link = |line| listening_address(line).map(|address| join_link(&address));
        assert_eq!(
            link("listening on http://0.0.0.0:8080").as_deref(),
            Some("http://127.0.0.1:8080/?join=1")
        );
        assert_eq!(link("listening on http://[::]:80\n").as_deref(), Some("http://[::1]:80/?join=1"));
        assert_eq!(link("volunteers: http://127.0.0.1:8080/"), None);
    }
}
