//! Running other programs: said aloud, and named when they fail.

use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// Runs to the end, with its output on ours; an error unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let words = words(command);
    eprintln!("$ {words}");
    let status = command.status().with_context(|| format!("cannot start `{words}`"))?;
    require(&words, status)
}

/// What the program prints on its standard output; None where it cannot run or fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

fn require(words: &str, status: ExitStatus) -> Result<()> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => bail!("`{words}` failed with exit code {code}"),
        None => bail!("`{words}` was ended by a signal"),
    }
}

/// The command as one would type it; a program with a long path by its name.
pub fn words(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|word| {
            let word = word.to_string_lossy();
            if word.contains(' ') { format!("'{word}'") } else { word.into_owned() }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Out of reach of the terminal's Ctrl-C, which then reaches the caller alone: it ends things in order.
pub fn in_its_own_group(command: &mut Command) -> &mut Command {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    command
}

/// Asks a process to finish.
pub fn interrupt(process: u32) {
    signal("INT", &process.to_string());
}

/// Asks a process to finish, as the system does when it goes down.
pub fn terminate(process: u32) {
    signal("TERM", &process.to_string());
}

/// Ends a process on the spot.
pub fn kill(process: u32) {
    signal("KILL", &process.to_string());
}

/// Ends a process that has its own group, and all that it started.
pub fn kill_group(process: u32) {
    signal("KILL", &format!("-{process}"));
}

/// Through the system's own program, as the standard library cannot. A process that has ended already is fine.
fn signal(name: &str, process: &str) {
    let mut command = if cfg!(windows) {
        let mut command = Command::new("taskkill");
        command.args(["/T", "/F", "/PID", process.trim_start_matches('-')]);
        command
    } else {
        let mut command = Command::new("kill");
        command.args([&format!("-{name}"), "--", process]);
        command
    };
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
}
