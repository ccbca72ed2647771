//! The finished pages: both browser modules through wasm-bindgen, and every file of the page under a name that
//! carries the hash of its content.

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use anyhow::{Context, Result, bail};

use crate::{process, setup::WASM, workspace::Workspace};

/// The page's program: a binary of the package `www`.
const PAGE: &str = "www";
/// The training program: a binary of the package `wasm-worker`.
const WORKER: &str = "worker";
/// Attributes of `index.html` that name a file.
const REFERENCES: [&str; 2] = [" src=\"", " href=\""];

/// How cargo builds for the browser: always both packages together, so that it compiles what they share once.
pub const BROWSER_BUILD: [&str; 8] =
    ["--profile", "web", "--target", WASM, "--package", "www", "--package", "wasm-worker"];

/// Builds both modules and writes the pages into the folder `dist`, which is created.
///
/// # Errors
///
/// A build that fails, a file that cannot be read or written, a name in `index.html` without its file.
pub fn bundle(workspace: &Workspace, dist: &Path) -> Result<()> {
    process::run(
        workspace.cargo_web().arg("build").args(BROWSER_BUILD).args(["--bin", PAGE, "--bin", WORKER]),
    )?;
    fs::create_dir_all(dist).with_context(|| format!("cannot create {}", dist.display()))?;
    // A dedicated worker is started by name, and its files name each other: they carry no hash.
    bindgen(workspace, WORKER, dist)?;
    fs::copy(workspace.root.join("wasm-worker/loader.js"), dist.join("worker_loader.js"))?;

    let generated = tempfile::tempdir()?;
    bindgen(workspace, PAGE, generated.path())?;
    let sources = workspace.root.join("www");
    let index = fs::read_to_string(sources.join("index.html")).context("cannot read www/index.html")?;
    let (index, files) = link(&index, |name| {
        [generated.path(), &sources].iter().find_map(|folder| fs::read(folder.join(name)).ok())
    })?;
    for (name, bytes) in files {
        fs::write(dist.join(name), bytes)?;
    }
    Ok(fs::write(dist.join("index.html"), index)?)
}

/// Makes a module that the browser loads: `NAME.js` and `NAME_bg.wasm` in `out`.
fn bindgen(workspace: &Workspace, name: &str, out: &Path) -> Result<()> {
    let module = workspace.web_target().join(WASM).join("web").join(format!("{name}.wasm"));
    process::run(
        workspace
            .command("wasm-bindgen")
            .args(["--target", "web", "--no-typescript", "--out-name", name, "--out-dir"])
            .arg(out)
            .arg(module),
    )
}

/// `index.html` with the hashed name of every file it names, and those files by their hashed names.
///
/// A file is named by an attribute `src` or `href`. Where its name stands in quotes elsewhere, as in an inline script,
/// it is replaced too. All pages are in one folder, and the files beside them: whatever path a proxy puts before them, they
/// are found.
fn link(index: &str, read: impl Fn(&str) -> Option<Vec<u8>>) -> Result<(String, BTreeMap<String, Vec<u8>>)> {
    let mut linked = index.to_owned();
    let mut files = BTreeMap::new();
    for attribute in REFERENCES {
        for rest in index.split(attribute).skip(1) {
            let Some((name, _)) = rest.split_once('"') else { continue };
            let Some(bytes) = read(name) else {
                bail!("www/index.html names {name:?}, but there is no such file in www")
            };
            let hashed = hashed(name, &bytes);
            linked = linked.replace(&format!("\"{name}\""), &format!("\"./{hashed}\""));
            files.insert(hashed, bytes);
        }
    }
    Ok((linked, files))
}

/// `base-0123456789abcdef.css` of `styles/base.css`: such a name never means other bytes, so browsers keep it for ever.
fn hashed(name: &str, bytes: &[u8]) -> String {
    let file = name.rsplit('/').next().unwrap_or(name);
    let (stem, ending) = file.rsplit_once('.').unwrap_or((file, ""));
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{stem}-{:016x}.{ending}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_their_content() {
        let page = r#"<link rel="css" href="styles/base.css"><script src="a.min.js" defer></script>
            <script type="module">import init from "a.min.js";</script>"#;
        let read = |style: &'static str| {
            move |name: &str| match name {
                "styles/base.css" => Some(style.into()),
                "a.min.js" => Some(b"1".to_vec()),
                _ => None,
            }
        };
        let (linked, files) = link(page, read("body {}")).unwrap();
        let names: Vec<_> = files.keys().cloned().collect();
        let [script, style] = &names[..] else { panic!("{names:?}") };
        assert!(script.starts_with("a.min-") && script.ends_with(".js"), "{script}");
        assert!(style.starts_with("base-") && style.len() == "base-0123456789abcdef.css".len(), "{style}");
        assert_eq!(files[style], b"body {}");
        assert_eq!(linked.matches(&format!("\"./{script}\"")).count(), 2, "{linked}");
        assert!(linked.contains(&format!("href=\"./{style}\"")), "{linked}");

        let (_, others) = link(page, read("body { color: red }")).unwrap();
        assert!(others.contains_key(script) && !others.contains_key(style), "{others:?}");
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let error = link(r#"<script src="gone.js">"#, |_| None).unwrap_err().to_string();
        assert!(error.contains("\"gone.js\""), "{error}");
    }
}
