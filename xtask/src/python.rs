//! A Python with the package `openai`, with which the tests ask for texts as other people's programs do.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::{process, workspace::Workspace};

/// The client and its version.
const CLIENT: &str = "openai==3.57.0";
/// By this variable the tests find the Python.
pub const VARIABLE: &str = "PYTHON_WITH_OPENAI";

/// Whether there is a Python that can make an environment of its own.
#[must_use]
pub fn is_found(workspace: &Workspace) -> bool {
    process::output(workspace.command("python3").args(["-c", "import venv, ensurepip"])).is_some()
}

/// The Python in an environment of its own among our tools, made where it is missing.
///
/// # Errors
///
/// An environment that cannot be made, or a package that cannot be had.
pub fn with_openai(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.tools.join(format!("python-{}", CLIENT.replace("==", "-")));
    let python = folder.join("bin").join("python");
    // Written last: an environment that was left half done is made again.
    let ready = folder.join("ready");
    if ready.is_file() && python.exists() {
        return Ok(python);
    }
    process::run(workspace.command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut install = workspace.command(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", CLIENT]);
    process::run(&mut install)
        .with_context(|| format!("the Python package {CLIENT}, with which a test asks, cannot be had"))?;
    fs::write(&ready, CLIENT)?;
    Ok(python)
}
