//! Find the dictionary inside the crate `webster` and put it, as plain text, into the binary.
//!
//! The crate's own interface looks up single words; its source has the whole as one JSON object.

use std::{collections::BTreeMap, env, error::Error, fs, path::Path, path::PathBuf, process::Command};

use crate::compress::compress;

/// Write `webster.z` and `webster.rs` (its hash and length) to `out`.
pub fn embed(out: &Path) -> Result<(), Box<dyn Error>> {
    let json = package_folder(out)?.join("src/dictionary.json");
    println!("cargo::rerun-if-changed={}", json.display());
    let words: BTreeMap<String, String> = serde_json::from_slice(&fs::read(&json)?)?;
    let text: String = words
        .iter()
        .map(|(word, definition)| format!("{}\n{}\n\n", word.trim(), definition.trim()))
        .collect();
    fs::write(out.join("webster.z"), compress(text.as_bytes())?)?;
    let constants = format!(
        "pub(crate) const LENGTH: usize = {};\npub(crate) const HASH: [u8; 32] = {:?};\n\
         pub(crate) const COMPRESSED: &[u8] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/webster.z\"));\n",
        text.len(),
        blake3::hash(text.as_bytes()).as_bytes(),
    );
    fs::write(out.join("webster.rs"), constants)?;
    Ok(())
}

/// Ask cargo where the crate's source is.
///
/// The question is put for a package of its own with this one dependency and this workspace's lock file:
/// asked for the workspace, cargo wants every package of every target to be downloaded, which a plain build
/// does not do.
fn package_folder(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let home = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let probe = out.join("webster-probe");
    fs::create_dir_all(&probe)?;
    fs::write(
        probe.join("Cargo.toml"),
        "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n\
         [dependencies]\nwebster = \"0.3\"\n[workspace]\n",
    )?;
    fs::write(probe.join("lib.rs"), "")?;
    fs::copy(home.join("../Cargo.lock"), probe.join("Cargo.lock"))?;
    // Run from here, so that a configuration of vendored sources counts.
    let answer = Command::new(env::var("CARGO")?)
        .args(["metadata", "--offline", "--format-version", "1", "--filter-platform", &env::var("HOST")?])
        .arg("--manifest-path")
        .arg(probe.join("Cargo.toml"))
        .current_dir(&home)
        .output()?;
    if !answer.status.success() {
        let words = String::from_utf8_lossy(&answer.stderr).into_owned();
        return Err(format!("cargo metadata could not find the crate webster: {words}").into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&answer.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let manifest = packages
        .iter()
        .find(|p| p["name"] == "webster")
        .and_then(|p| p["manifest_path"].as_str())
        .ok_or("cargo metadata does not list the crate webster")?;
    Ok(Path::new(manifest).parent().ok_or("the crate webster has no folder")?.to_path_buf())
}
