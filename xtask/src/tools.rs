//! The tool that cargo installs, into a folder of our own, at the version this workspace is built with.

use std::{fmt, fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::{process, workspace::Workspace};

/// A package of programs from the registry.
pub struct Tool {
    package: &'static str,
    version: &'static str,
    /// Programs the package provides; the first one is asked for its version.
    programs: &'static [&'static str],
    /// Settings of cargo it is built with.
    settings: &'static [&'static str],
}

/// Must be the version of the library in Cargo.lock: generated code and library belong together.
pub const WASM_BINDGEN: Tool = Tool {
    package: "wasm-bindgen-cli",
    version: "0.2.130",
    programs: &["wasm-bindgen", "wasm-bindgen-test-runner"],
    // It works for seconds on the module of the training program, most of them in these packages.
    settings: &[
        "profile.release.opt-level=0",
        "profile.release.package.walrus.opt-level=1",
        "profile.release.package.wasmparser.opt-level=1",
        "profile.release.package.wasm-encoder.opt-level=1",
        "profile.release.package.wasm-bindgen-cli-support.opt-level=1",
    ],
};

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.package, self.version)
    }
}

impl Tool {
    fn program(&self, workspace: &Workspace, index: usize) -> PathBuf {
        workspace.tools.join("bin").join(format!("{}{}", self.programs[index], std::env::consts::EXE_SUFFIX))
    }

    fn is_installed(&self, workspace: &Workspace) -> bool {
        (0..self.programs.len()).all(|index| self.program(workspace, index).is_file())
            && process::output(workspace.command(self.program(workspace, 0)).arg("--version"))
                .is_some_and(|text| says_version(&text, self.version))
    }
}

/// Installs the tool if it is missing or of another version.
///
/// # Errors
///
/// A folder of tools that cannot be written, or a build that fails.
pub fn install(workspace: &Workspace, tool: &Tool) -> Result<()> {
    if tool.is_installed(workspace) {
        return Ok(());
    }
    fs::create_dir_all(&workspace.tools).with_context(|| {
        format!(
            "cannot create {}: set COHORT_TOOLS to a folder that can be written",
            workspace.tools.display()
        )
    })?;
    // Clones share the folder: the second one waits, then finds the tool there.
    let lock = fs::File::create(workspace.tools.join(".lock"))?;
    lock.lock().context("cannot lock the folder of tools")?;
    if tool.is_installed(workspace) {
        return Ok(());
    }
    let build = workspace.tools.join("build");
    eprintln!("installing {tool} (once, takes a minute or two)");
    let mut command = workspace.cargo();
    command
        .args(["install", tool.package, "--version", &format!("={}", tool.version), "--force"])
        // Without TLS: it talks to the driver of a browser on this computer only.
        .arg("--no-default-features")
        .args(tool.programs.iter().flat_map(|program| ["--bin", program]))
        .args(tool.settings.iter().flat_map(|setting| ["--config", setting]))
        .arg("--root")
        .arg(&workspace.tools)
        .env("CARGO_TARGET_DIR", &build)
        // Take dependencies that the pinned compiler can build.
        .env("CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS", "fallback");
    let installed = process::run(&mut command).with_context(|| format!("{tool} could not be installed"));
    // Only the programs stay.
    fs::remove_dir_all(&build).ok();
    installed
}

/// Whether `--version` printed this version, as in "wasm-bindgen 0.2.130 (abc)".
fn says_version(text: &str, version: &str) -> bool {
    text.split_whitespace().any(|word| word == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_whole_word() {
        assert!(says_version("wasm-bindgen 0.2.130\n", "0.2.130"));
        assert!(says_version("wasm-bindgen 0.2.130 (0a1b2c3d)", "0.2.130"));
        assert!(!says_version("wasm-bindgen 0.2.1300", "0.2.130"));
        assert!(!says_version("", "0.21.14"));
    }

    /// The lock file and the command-line tool must agree, or the browser's modules do not load.
    #[test]
    fn wasm_bindgen_is_the_locked_one() {
        let lock = fs::read_to_string("../Cargo.lock").unwrap();
        let entry = format!("name = \"wasm-bindgen\"\nversion = \"{}\"", WASM_BINDGEN.version);
        assert!(lock.contains(&entry), "Cargo.lock has another wasm-bindgen than {}", WASM_BINDGEN.version);
    }
}
