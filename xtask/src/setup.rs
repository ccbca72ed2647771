//! Everything the other commands need, installed or named with the command that installs it.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::{
    chromium, process, python,
    system::{Manager, Package, hint, is_root},
    tools,
    workspace::Workspace,
};

/// What the browser's modules are compiled for.
pub const WASM: &str = "wasm32-unknown-unknown";

/// Everything that any command needs.
///
/// # Errors
///
/// What cannot be installed, with the command that installs it.
pub fn everything(workspace: &Workspace) -> Result<()> {
    for_building(workspace)?;
    let browser = browser(workspace)?;
    python(workspace)?;
    eprintln!("ready: tools in {}, browser {}", workspace.tools.display(), browser.chromium.display());
    Ok(())
}

/// What the pages are built with.
///
/// # Errors
///
/// What cannot be installed, with the command that installs it.
pub fn for_building(workspace: &Workspace) -> Result<()> {
    wasm_target(workspace)?;
    tools::install(workspace, &tools::WASM_BINDGEN)
}

/// The programs that tests and benches drive.
pub struct Browser {
    /// Chromium or Chrome.
    pub chromium: PathBuf,
    /// ChromeDriver.
    pub driver: PathBuf,
}

/// Chromium and its driver, for tests and benches.
///
/// # Errors
///
/// The one that is missing and cannot be installed, with the command that installs it.
pub fn browser(workspace: &Workspace) -> Result<Browser> {
    require(workspace, &[Package::Chromium, Package::ChromeDriver])?;
    match (find(workspace, Package::Chromium), find(workspace, Package::ChromeDriver)) {
        (Some(chromium), Some(driver)) => Ok(Browser { chromium, driver }),
        _ => bail!("Chromium went away just after it was found"),
    }
}

/// Chromium alone, for the demo.
///
/// # Errors
///
/// As for [`browser`].
pub fn chromium(workspace: &Workspace) -> Result<PathBuf> {
    require(workspace, &[Package::Chromium])?;
    match find(workspace, Package::Chromium) {
        Some(chromium) => Ok(chromium),
        None => bail!("Chromium went away just after it was found"),
    }
}

/// A Python with the package that a test asks with.
///
/// # Errors
///
/// What is missing and cannot be installed, with the command that installs it.
pub fn python(workspace: &Workspace) -> Result<PathBuf> {
    require(workspace, &[Package::Python])?;
    python::with_openai(workspace)
}

fn find(workspace: &Workspace, package: Package) -> Option<PathBuf> {
    match package {
        Package::Python => workspace.find_program("python3").filter(|_| python::is_found(workspace)),
        Package::Chromium => chromium::find(workspace.path()),
        Package::ChromeDriver => chromium::find_driver(workspace.path()),
    }
}

/// Installs what is missing where that needs no question; otherwise says how a person installs it.
fn require(workspace: &Workspace, packages: &[Package]) -> Result<()> {
    let missing = || -> Vec<_> {
        packages.iter().copied().filter(|package| find(workspace, *package).is_none()).collect()
    };
    let before = missing();
    let manager = Manager::of(workspace);
    if !before.is_empty() && manager == Some(Manager::Apt) && is_root() {
        // A failure shows in what is missing afterwards.
        if let Err(error) = install_with_apt(workspace, &before) {
            eprintln!("note: {error:#}");
        }
    }
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|package| package.name()).collect();
    bail!(
        "{} not found: {}; or name your browser in the environment variables CHROME and CHROMEDRIVER",
        names.join(" and "),
        hint(manager, &missing)
    )
}

fn install_with_apt(workspace: &Workspace, packages: &[Package]) -> Result<()> {
    let apt = || {
        let mut command = workspace.command("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    process::run(apt().args(["update", "--quiet"]))?;
    process::run(
        apt()
            .args(["install", "--yes", "--quiet", "--no-install-recommends"])
            .args(packages.iter().map(|package| Manager::Apt.package(*package))),
    )
}

fn wasm_target(workspace: &Workspace) -> Result<()> {
    let installed = || {
        process::output(workspace.command("rustc").current_dir(&workspace.root).args(["--print", "sysroot"]))
            .is_some_and(|sysroot| PathBuf::from(sysroot.trim()).join("lib/rustlib").join(WASM).is_dir())
    };
    if installed() {
        return Ok(());
    }
    if workspace.find_program("rustup").is_none() {
        bail!(
            "the Rust target {WASM} is missing and there is no rustup to install it: install rustup from https://rustup.rs, or the package of your system that holds Rust's {WASM} library"
        );
    }
    process::run(workspace.command("rustup").current_dir(&workspace.root).args(["target", "add", WASM]))
}
