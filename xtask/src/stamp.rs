//! One number for everything that goes into the pages, so that they are built again only when it changed.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Files and folders of the workspace that the pages are made of.
const INPUTS: [&str; 11] = [
    ".cargo/config.toml",
    "Cargo.lock",
    "Cargo.toml",
    "engine",
    "protocol",
    "rust-toolchain.toml",
    "wasm-worker",
    "www",
    // How they are built, and what is done to them afterwards.
    "xtask/src/bundle.rs",
    "xtask/src/pages.rs",
    "xtask/src/precompress.rs",
];

/// Folders that do not go into the pages.
const ASIDE: [&str; 5] = ["benches", "dist", "examples", "target", "tests"];

/// The number of the workspace's inputs and of the tool that works on them, which is named with its version.
///
/// # Errors
///
/// An input that cannot be read.
pub fn stamp(root: &Path, tool: &str) -> Result<String> {
    let mut files = Vec::new();
    for input in INPUTS {
        collect(&root.join(input), &mut files)?;
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    tool.hash(&mut hasher);
    for file in files {
        file.strip_prefix(root).unwrap_or(&file).hash(&mut hasher);
        fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_file() {
        files.push(path.to_path_buf());
    } else if path.is_dir() && !ASIDE.iter().any(|aside| path.ends_with(aside)) {
        for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
            collect(&entry?.path(), files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_with_sources_and_tools_but_not_with_tests() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = |tool: &str| stamp(folder.path(), tool).unwrap();
        write("www/src/main.rs", "one");
        write("Cargo.lock", "");
        let first = of("bindgen 1");
        assert_eq!(first, of("bindgen 1"));
        assert_ne!(first, of("bindgen 2"));
        write("engine/tests/golden.rs", "a test");
        write("README.md", "words");
        assert_eq!(first, of("bindgen 1"));
        write("www/src/main.rs", "two");
        assert_ne!(first, of("bindgen 1"));
    }
}
