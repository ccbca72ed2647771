//! The tools that cargo installs, into a folder of our own, at the versions this workspace is built with.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{process, workspace::Workspace};

pub struct Tool {
    /// Name of the package.
    pub package: &'static str,
    pub version: &'static str,
    /// Programs the package provides; the first one is asked for its version.
    programs: &'static [&'static str],
    /// Further arguments for `cargo install`.
    arguments: &'static [&'static str],
}

/// Must be the version of the library in Cargo.lock: generated code and library belong together.
pub const WASM_BINDGEN: Tool = Tool {
    package: "wasm-bindgen-cli",
    version: "0.2.130",
    programs: &["wasm-bindgen", "wasm-bindgen-test-runner"],
    arguments: &[],
};

/// Without its default features: it runs offline, so it needs neither TLS nor the look for updates. Locked: with
/// the newest versions of its dependencies it does not compile.
pub const TRUNK: Tool = Tool {
    package: "trunk",
    version: "0.21.14",
    programs: &["trunk"],
    arguments: &["--locked", "--no-default-features"],
};

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

/// Installs those that are missing or of another version.
pub fn install(workspace: &Workspace, tools: &[Tool]) -> Result<()> {
    if tools.iter().all(|tool| tool.is_installed(workspace)) {
        return Ok(());
    }
    fs::create_dir_all(&workspace.tools).with_context(|| {
        format!(
            "cannot create {}: set COHORT_TOOLS to a folder that can be written",
            workspace.tools.display()
        )
    })?;
    // Clones share the folder: the second one waits, then finds the tools there.
    let lock = fs::File::create(workspace.tools.join(".lock"))?;
    lock.lock().context("cannot lock the folder of tools")?;
    let build = workspace.tools.join("build");
    let installed = tools
        .iter()
        .filter(|tool| !tool.is_installed(workspace))
        .try_for_each(|tool| install_one(workspace, tool, &build));
    // Only the programs stay; half a gigabyte of objects goes.
    fs::remove_dir_all(&build).ok();
    installed
}

fn install_one(workspace: &Workspace, tool: &Tool, build: &Path) -> Result<()> {
    eprintln!("installing {} {} (once, takes minutes)", tool.package, tool.version);
    let mut command = workspace.cargo();
    command
        .args(["install", tool.package, "--version", &format!("={}", tool.version), "--force"])
        .args(tool.arguments)
        .arg("--root")
        .arg(&workspace.tools)
        .env("CARGO_TARGET_DIR", build)
        // They run for seconds: their own release profiles would cost ten minutes of link-time optimisation.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        // Take dependencies that the pinned compiler can build.
        .env("CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS", "fallback");
    process::run(&mut command)
        .with_context(|| format!("{} {} could not be installed", tool.package, tool.version))
}

/// Whether `--version` printed this version, as in "trunk 0.21.14" or "wasm-bindgen 0.2.130 (abc)".
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
        assert!(!says_version("trunk 0.21.140", "0.21.14"));
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
