//! Where things are: the clone, the build folder, our own tools; and the environment of the programs we start.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

/// Set by `cargo run` for this program; meaningless for the ones it starts.
const LEAKED_BY_CARGO_RUN: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_PRIMARY_"];

/// The folders of one call, and the search path of the programs it starts.
pub struct Workspace {
    /// The clone.
    pub root: PathBuf,
    /// Cargo's build folder.
    pub target: PathBuf,
    /// Tools of our own, shared between clones.
    pub tools: PathBuf,
    cargo: PathBuf,
    path: OsString,
}

impl Workspace {
    /// Finds them from the environment and from where this program lies.
    ///
    /// # Errors
    ///
    /// No folder for tools, or a program that was not started by cargo.
    pub fn find() -> Result<Self> {
        // What `cargo run` says comes first: clones may share a build folder, and with it this program.
        let manifest = env::var_os("CARGO_MANIFEST_DIR");
        let root = Path::new(manifest.as_deref().unwrap_or(env!("CARGO_MANIFEST_DIR").as_ref()))
            .parent()
            .context("xtask does not lie in a workspace")?
            .to_path_buf();
        let cargo = env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
        let tools = tools_folder(|name| env::var_os(name)).context(
            "no folder for tools: set COHORT_TOOLS to a folder where they may be installed, or HOME",
        )?;
        let path = search_path(&tools, &cargo, cargo_home(|name| env::var_os(name)), env::var_os("PATH"))?;
        Ok(Self { root, target: target_folder()?, tools, cargo, path })
    }

    /// Where the browser's modules and their tests build, apart from the native build so that neither waits for the other.
    pub fn web_target(&self) -> PathBuf {
        self.target.join("web")
    }

    /// The coordinator's binary.
    pub fn cohort(&self) -> PathBuf {
        self.target.join("debug").join(format!("cohort{}", env::consts::EXE_SUFFIX))
    }

    /// A command that finds our tools first and Rust's even where PATH lacks them.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", &self.path).env("CARGO_TARGET_DIR", &self.target);
        for (name, _) in env::vars_os() {
            if LEAKED_BY_CARGO_RUN.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Cargo, in the clone.
    pub fn cargo(&self) -> Command {
        let mut command = self.command(&self.cargo);
        command.current_dir(&self.root);
        command
    }

    /// Cargo for wasm32, in its own build folder.
    pub fn cargo_web(&self) -> Command {
        let mut command = self.cargo();
        for_the_browser(&mut command, &self.web_target());
        command
    }

    /// The search path of the programs we start.
    pub fn path(&self) -> &OsStr {
        &self.path
    }

    /// The first file of this name on the search path.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        find_in(&self.path, name)
    }
}

/// Flags set by the user would take the place of those in .cargo/config.toml, which the browser's build needs.
pub fn for_the_browser(command: &mut Command, target: &Path) {
    command.env("CARGO_TARGET_DIR", target).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
}

/// This program lies at TARGET/PROFILE/xtask, whatever set the build folder.
fn target_folder() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot tell where this program lies")?;
    let folder = program.parent().and_then(Path::parent);
    Ok(folder
        .context("this program does not lie in a build folder: start it with `cargo xtask`")?
        .to_path_buf())
}

fn tools_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("COHORT_TOOLS").or_else(|| {
        let cache = folder("XDG_CACHE_HOME")
            .or_else(|| folder("HOME").map(|home| home.join(".cache")))
            .or_else(|| folder("LOCALAPPDATA"))?;
        Some(cache.join("cohort").join("tools"))
    })
}

fn cargo_home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("CARGO_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".cargo")))
        .or_else(|| folder("USERPROFILE").map(|home| home.join(".cargo")))
}

/// Our tools first, so that a user's own versions are not used; then Rust's; then the user's path. rustup's
/// proxies come before the toolchain's own folder, so that rust-toolchain.toml holds for everything.
fn search_path(
    tools: &Path,
    cargo: &Path,
    cargo_home: Option<PathBuf>,
    inherited: Option<OsString>,
) -> Result<OsString> {
    let mut folders = vec![tools.join("bin")];
    folders.extend(cargo_home.map(|home| home.join("bin")));
    folders.extend(cargo.parent().filter(|folder| folder.is_absolute()).map(Path::to_path_buf));
    folders.extend(env::split_paths(&inherited.unwrap_or_default()));
    env::join_paths(folders).context("a folder on PATH has a name that PATH cannot hold")
}

/// The first file of this name in the folders of a search path.
pub fn find_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    env::split_paths(path)
        .map(|folder| folder.join(format!("{name}{}", env::consts::EXE_SUFFIX)))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(given: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| given.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    }

    #[test]
    fn tools_lie_in_the_cache_unless_told_otherwise() {
        let folder = |given| tools_folder(variables(given));
        assert_eq!(folder(&[("HOME", "/h")]), Some("/h/.cache/cohort/tools".into()));
        assert_eq!(folder(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), Some("/x/cohort/tools".into()));
        assert_eq!(folder(&[("HOME", "/h"), ("COHORT_TOOLS", "/t")]), Some("/t".into()));
        assert_eq!(folder(&[("HOME", "")]), None);
    }

    #[test]
    fn our_tools_come_first_and_rust_is_found_without_a_path() {
        let path = search_path(
            Path::new("/tools"),
            Path::new("/toolchain/bin/cargo"),
            Some("/home/.cargo".into()),
            Some("/bin".into()),
        )
        .unwrap();
        let folders: Vec<_> = env::split_paths(&path).collect();
        let expected = ["/tools/bin", "/home/.cargo/bin", "/toolchain/bin", "/bin"].map(PathBuf::from);
        assert_eq!(folders, expected);
    }
}
