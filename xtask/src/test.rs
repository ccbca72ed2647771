//! `cargo xtask test`: what CI checks, stage by stage; the first failure ends it.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{bundle, pages, process, python, setup, workspace::Workspace};

/// The package whose tests start real processes and real browsers.
const END_TO_END: &str = "tests";
/// Seconds that the golden vectors may take in a browser on a slow computer.
const BROWSER_TIMEOUT: &str = "1800";

/// Runs all stages up to the first that fails, and prints what each took.
///
/// # Errors
///
/// The stage that failed, and why.
pub fn test(workspace: &Workspace) -> Result<()> {
    let mut report = Report::default();
    let result = stages(workspace, &mut report);
    eprintln!("\n{}", report.table());
    result
}

fn stages(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let (browser, python) = report.stage("set-up", || {
        setup::for_building(workspace)?;
        Ok((setup::browser(workspace)?, setup::python(workspace)?))
    })?;
    report.stage("format", || process::run(workspace.cargo().args(["fmt", "--all", "--check"])))?;
    report.stage("pages", || pages::build(workspace))?;
    // Every native stage has the tests with it: they switch on features of dependencies, and without them cargo would build
    // these again.
    let cargo = |arguments: &[&str]| {
        let mut command = workspace.cargo();
        command.args(arguments);
        command
    };
    report.stage("lints", || {
        process::run(cargo(&["clippy", "--all-targets"]).args(["--", "--deny", "warnings"]))
    })?;
    report.stage("build", || process::run(&mut cargo(&["build", "--bins", "--tests"])))?;

    let targets = TestTargets::of(workspace)?;
    let selected = |names: &[String]| -> Vec<String> {
        names.iter().flat_map(|name| ["--test".to_owned(), name.clone()]).collect()
    };
    report.stage("native tests", || {
        process::run(cargo(&["test", "--lib", "--bins"]).args(selected(&targets.native)))
    })?;
    report.stage("browser tests", || {
        let mut command = workspace.cargo_web();
        command
            .arg("test")
            .args(bundle::BROWSER_BUILD)
            .args(["--test", "golden"])
            .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", "wasm-bindgen-test-runner")
            .env("WASM_BINDGEN_TEST_TIMEOUT", BROWSER_TIMEOUT);
        process::run(browser_environment(&mut command, &browser))
    })?;
    report.stage("end-to-end tests", || {
        let mut command = cargo(&["test"]);
        command.args(selected(&targets.end_to_end)).env("COHORT_BIN", workspace.cohort());
        command.env(python::VARIABLE, &python);
        process::run(browser_environment(&mut command, &browser))
    })
}

fn browser_environment<'a>(command: &'a mut Command, browser: &setup::Browser) -> &'a mut Command {
    command.env("CHROME", &browser.chromium).env("CHROMEDRIVER", &browser.driver)
}

/// Integration tests by name. Named one by one, and not by package, because cargo would build the
/// dependencies with other features for a part of the workspace.
struct TestTargets {
    native: Vec<String>,
    end_to_end: Vec<String>,
}

impl TestTargets {
    fn of(workspace: &Workspace) -> Result<Self> {
        let metadata =
            process::output(workspace.cargo().args(["metadata", "--no-deps", "--format-version", "1"]))
                .context("`cargo metadata` failed")?;
        Self::from_metadata(&serde_json::from_str(&metadata).context("`cargo metadata` printed no JSON")?)
    }

    fn from_metadata(metadata: &Value) -> Result<Self> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let defaults = list(&metadata["workspace_default_members"]);
        let mut targets = Self { native: Vec::new(), end_to_end: Vec::new() };
        for package in list(&metadata["packages"]).iter().filter(|package| defaults.contains(&package["id"]))
        {
            let tests = list(&package["targets"])
                .into_iter()
                .filter(|target| target["kind"] == serde_json::json!(["test"]));
            let names = tests.filter_map(|target| target["name"].as_str().map(str::to_owned));
            if package["name"] == END_TO_END {
                targets.end_to_end.extend(names);
            } else {
                targets.native.extend(names);
            }
        }
        if targets.end_to_end.is_empty() {
            bail!("the package `{END_TO_END}` has no tests");
        }
        match targets.end_to_end.iter().find(|name| targets.native.contains(name)) {
            Some(name) => {
                bail!("two integration tests are called `{name}`: rename one, they are selected by name")
            }
            None => Ok(targets),
        }
    }
}

/// What each stage took.
#[derive(Default)]
struct Report {
    stages: Vec<(&'static str, Duration, bool)>,
}

impl Report {
    fn stage<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("\n==> {name}");
        let start = Instant::now();
        let result = work();
        let duration = start.elapsed();
        self.stages.push((name, duration, result.is_ok()));
        let outcome = if result.is_ok() { "done" } else { "FAILED" };
        eprintln!("<== {name}: {outcome} after {:.1} s", duration.as_secs_f64());
        result.with_context(|| format!("stage `{name}` failed"))
    }

    fn table(&self) -> String {
        let mut rows: Vec<_> = self
            .stages
            .iter()
            .map(|(name, duration, passed)| {
                format!(
                    "{name:<18} {:>8.1} s  {}",
                    duration.as_secs_f64(),
                    if *passed { "ok" } else { "FAILED" }
                )
            })
            .collect();
        let total: Duration = self.stages.iter().map(|(_, duration, _)| *duration).sum();
        rows.push(format!("{:<18} {:>8.1} s", "total", total.as_secs_f64()));
        rows.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(end_to_end: &str) -> Value {
        serde_json::json!({
            "workspace_default_members": ["a", "t"],
            "packages": [
                {"id": "a", "name": "engine", "targets": [
                    {"kind": ["lib"], "name": "engine"}, {"kind": ["test"], "name": "golden"}]},
                {"id": "t", "name": "tests", "targets": [{"kind": ["test"], "name": end_to_end}]},
                {"id": "w", "name": "www", "targets": [{"kind": ["test"], "name": "not-native"}]},
            ],
        })
    }

    #[test]
    fn tests_are_selected_by_name() {
        let targets = TestTargets::from_metadata(&metadata("parity")).unwrap();
        assert_eq!(targets.native, ["golden"]);
        assert_eq!(targets.end_to_end, ["parity"]);
        assert!(TestTargets::from_metadata(&metadata("golden")).is_err());
    }

    #[test]
    fn the_table_names_what_failed() {
        let mut report = Report::default();
        report.stage("one", || Ok(())).unwrap();
        report.stage("two", || -> Result<()> { bail!("no") }).unwrap_err();
        let table = report.table();
        assert!(
            table.lines().nth(1).is_some_and(|row| row.starts_with("two") && row.ends_with("FAILED")),
            "{table}"
        );
        assert!(table.lines().last().is_some_and(|row| row.starts_with("total")));
    }
}
