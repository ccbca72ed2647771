//! `cargo xtask fuzz`: the targets of the crate `fuzz` with libFuzzer, which keeps what reaches new code and goes on from it.
//!
//! Coverage is counted by a pass of LLVM that the stable compiler has too. It goes over all dependencies, so this build
//! has a folder of its own.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{process, workspace::Workspace};

/// As the crate `fuzz` calls them.
pub const TARGETS: [&str; 6] = ["frame", "delta", "weights", "ranges", "relay", "run_toml"];
/// Counts of executed edges and compared values, where libFuzzer looks for them.
const COVERAGE: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// Longest input, in bytes: longer ones are slower and rarely reach more.
const LONGEST: u32 = 16 << 10;
/// An input that takes as many seconds counts as a finding.
const SLOWEST: u32 = 10;
/// More megabytes than a target can need.
const MEMORY: u32 = 2048;

/// What came of one target.
struct Outcome {
    target: &'static str,
    figures: Figures,
    /// Files of inputs that broke it.
    found: Vec<PathBuf>,
}

/// What libFuzzer says at its end.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    executions: u64,
    per_second: u64,
    /// Edges of the program that were executed.
    edges: u64,
    /// Edges, how often each, and values compared.
    features: u64,
}

/// Runs `target`, or all one after another, each for so many minutes.
///
/// # Errors
///
/// A missing C++ compiler, or inputs that broke a target.
pub fn fuzz(workspace: &Workspace, target: Option<&str>, minutes: f64) -> Result<()> {
    let targets: Vec<&'static str> =
        TARGETS.into_iter().filter(|name| target.is_none_or(|wanted| wanted == *name)).collect();
    ensure!(!targets.is_empty(), "there is no target of this name: choose one of {}", TARGETS.join(", "));
    ensure!(minutes > 0.0, "give the minutes of each target as a number above 0");
    find_compiler(workspace)?;
    build(workspace, &targets)?;
    let mut outcomes = Vec::new();
    for target in targets {
        outcomes.push(run(workspace, target, minutes)?);
    }
    println!("{}", table(&outcomes));
    let found: Vec<String> =
        outcomes.iter().flat_map(|outcome| &outcome.found).map(|file| file.display().to_string()).collect();
    ensure!(
        found.is_empty(),
        "these inputs broke their target: {}. Each stays as a seed: mend what it broke, and `cargo test -p fuzz` sees \
         that it stays mended",
        found.join(", ")
    );
    Ok(())
}

/// libFuzzer is C++, compiled on the spot.
fn find_compiler(workspace: &Workspace) -> Result<()> {
    if env::var_os("CXX").is_some() || workspace.find_program("c++").is_some() {
        return Ok(());
    }
    bail!("libFuzzer needs a C++ compiler, and there is no `c++`: install g++ or clang, or name one in CXX")
}

fn host(workspace: &Workspace) -> Result<String> {
    let version = process::output(workspace.command("rustc").arg("-vV")).context("`rustc -vV` failed")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("fuzz")
}

fn build(workspace: &Workspace, targets: &[&str]) -> Result<()> {
    let mut command = workspace.cargo();
    command
        .args(["build", "--package", "fuzz", "--features", "libfuzzer", "--profile", "fuzz"])
        // With a target named, flags are not for build scripts and macros, which run without libFuzzer.
        .args(["--target", &host(workspace)?])
        .args(targets.iter().flat_map(|target| ["--bin".to_owned(), program(target)]))
        .env("CARGO_TARGET_DIR", folder(workspace))
        .env("RUSTFLAGS", COVERAGE.join(" "))
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    process::run(&mut command)
}

fn program(target: &str) -> String {
    format!("fuzz_{target}")
}

fn run(workspace: &Workspace, target: &'static str, minutes: f64) -> Result<Outcome> {
    let seeds = workspace.root.join("fuzz").join("corpus").join(target);
    // What it learns is much, and different on every computer: not for the repository.
    let learned = folder(workspace).join("corpus").join(target);
    fs::create_dir_all(&learned).with_context(|| format!("cannot create {}", learned.display()))?;
    let before = found(&seeds)?;
    let name = format!("{}{}", program(target), env::consts::EXE_SUFFIX);
    let mut command = workspace.command(folder(workspace).join(host(workspace)?).join("fuzz").join(name));
    command
        .args([&learned, &seeds])
        .arg(format!("-artifact_prefix={}", seeds.join("found-").display()))
        .arg(format!("-max_total_time={}", (minutes * 60.0).ceil()))
        .args([
            format!("-max_len={LONGEST}"),
            format!("-timeout={SLOWEST}"),
            format!("-rss_limit_mb={MEMORY}"),
        ])
        .args(["-print_final_stats=1", "-verbosity=1"])
        .current_dir(&workspace.root)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let said = listen(&mut command)?;
    let found = found(&seeds)?.into_iter().filter(|file| !before.contains(file)).collect();
    Ok(Outcome { target, figures: figures(&said), found })
}

/// What a program says on standard error, which is also passed on. How it ends is seen from what it leaves.
fn listen(command: &mut Command) -> Result<String> {
    use std::io::{BufRead, BufReader};
    let words = process::words(command);
    eprintln!("$ {words}");
    let mut child = command.spawn().with_context(|| format!("cannot start `{words}`"))?;
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().context("it has no standard error")?).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        eprintln!("{line}");
        said.push_str(&line);
        said.push('\n');
    }
    let status = child.wait()?;
    ensure!(said.contains("Done ") || !status.success(), "`{words}` ended without having run");
    Ok(said)
}

fn found(seeds: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(seeds).with_context(|| format!("cannot read {}", seeds.display()))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("found-")) {
            files.push(path);
        }
    }
    Ok(files)
}

/// From lines such as `#4194304 pulse cov: 1234 ft: 5678 corp: 90/12Kb` and `stat::number_of_executed_units: 99`.
fn figures(said: &str) -> Figures {
    let last = |name: &str| {
        let after = said.lines().rev().find_map(|line| line.split_once(name));
        let number = after.and_then(|(_, rest)| rest.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    Figures {
        executions: last("stat::number_of_executed_units:"),
        per_second: last("stat::average_exec_per_sec:"),
        edges: last(" cov: "),
        features: last(" ft: "),
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut lines = vec![
        "| target | executions | a second | edges | features | found |".to_owned(),
        "|---|---:|---:|---:|---:|---:|".to_owned(),
    ];
    lines.extend(outcomes.iter().map(|Outcome { target, figures, found }| {
        let Figures { executions, per_second, edges, features } = figures;
        format!("| {target} | {executions} | {per_second} | {edges} | {features} | {} |", found.len())
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_last_lines() {
        let said = "#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                    #900\tDONE   cov: 120 ft: 340 corp: 7/90b lim: 4096 exec/s: 450 rss: 41Mb\n\
                    Done 900 runs in 2 second(s)\n\
                    stat::number_of_executed_units: 900\n\
                    stat::average_exec_per_sec:     450\n";
        let expected = Figures { executions: 900, per_second: 450, edges: 120, features: 340 };
        assert_eq!(figures(said), expected);
        assert_eq!(figures("it did not start"), Figures::default());
    }

    /// A target that is missing here would never be run for long.
    #[test]
    fn all_targets_are_known() {
        let manifest = fs::read_to_string("../fuzz/Cargo.toml").unwrap();
        let programs: Vec<&str> =
            manifest.lines().filter_map(|line| line.strip_prefix("name = \"fuzz_")).collect();
        let names: Vec<&str> = programs.iter().map(|name| name.trim_end_matches('"')).collect();
        assert_eq!(names, TARGETS);
    }
}
