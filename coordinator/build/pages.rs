//! Writes `$OUT_DIR/pages.rs`: the table of built pages that `src/pages/assets.rs` embeds.
//!
//! The pages come from the folder named by `COHORT_PAGES` (relative to the workspace), by default what
//! `cargo xtask` leaves in `www/dist`. Without it the table is empty and the binary says so in words.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// Files that lie beside an asset as its compressed forms.
const COMPRESSED: [&str; 2] = ["br", "gz"];

pub fn embed(out: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=COHORT_PAGES");
    let workspace = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?).join("..");
    let named = env::var_os("COHORT_PAGES").filter(|folder| !folder.is_empty());
    let folder = workspace.join(named.as_deref().unwrap_or("www/dist".as_ref()));

    let mut files = Vec::new();
    if folder.join("index.html").is_file() {
        println!("cargo::rerun-if-changed={}", folder.display());
        list(&folder, &mut files)?;
        files.sort();
    } else if named.is_some() {
        println!("cargo::warning=COHORT_PAGES names no built pages: {}", folder.display());
    } else {
        // Watching a path that is not there would run this script, and compile the crate, every time.
        println!("cargo::rerun-if-changed={}", workspace.join("www").display());
    }

    let table: String = files.iter().map(|file| entry(&folder, file)).collect::<io::Result<_>>()?;
    fs::write(out.join("pages.rs"), format!("pub(crate) static TABLE: &[Embedded] = &[\n{table}];\n"))
}

/// The assets under `folder`, without their compressed forms.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for found in fs::read_dir(folder)? {
        let path = found?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if !is_compressed_form(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_compressed_form(path: &Path) -> bool {
    let compressed = path.extension().is_some_and(|end| COMPRESSED.iter().any(|form| end == *form));
    compressed && path.with_extension("").is_file()
}

fn entry(folder: &Path, file: &Path) -> io::Result<String> {
    let inside = file.strip_prefix(folder).map_err(io::Error::other)?;
    let names: Vec<_> = inside.iter().map(|name| name.to_string_lossy()).collect();
    let forms = COMPRESSED.map(|form| {
        let mut path = file.as_os_str().to_owned();
        path.push(".");
        path.push(form);
        let path = PathBuf::from(path);
        if path.is_file() { format!("Some(include_bytes!({path:?}))") } else { "None".to_owned() }
    });
    let [br, gz] = forms;
    Ok(format!(
        "    Embedded {{ path: {:?}, plain: include_bytes!({file:?}), br: {br}, gz: {gz} }},\n",
        format!("/{}", names.join("/")),
    ))
}
