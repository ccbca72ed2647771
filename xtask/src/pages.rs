//! The pages with both browser modules: bundled, then compressed.
//!
//! Finished ones are kept in the build folder under the number of what they are made of, so that a fresh clone or
//! another branch finds them there; `www/dist` is a copy of the current ones, where the coordinator's build looks.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    bundle::bundle, mirror::mirror, precompress::precompress, stamp::stamp, tools::WASM_BINDGEN,
    workspace::Workspace,
};

/// Builds kept, so that going back and forth between branches costs nothing.
const KEPT: usize = 3;

/// Brings `www/dist` up to date with the workspace.
///
/// # Errors
///
/// A build that fails, or a folder that cannot be written.
pub fn build(workspace: &Workspace) -> Result<()> {
    let stamp = stamp(&workspace.root, &WASM_BINDGEN.to_string())?;
    let kept = workspace.web_target().join("pages");
    let pages = kept.join(&stamp);
    if pages.is_dir() {
        eprintln!("the pages are up to date");
    } else {
        build_into(workspace, &kept, &pages)?;
        forget_old(&kept, &pages);
    }
    let dist = workspace.root.join("www").join("dist");
    mirror(&pages, &dist).with_context(|| format!("the pages cannot be copied to {}", dist.display()))
}

/// Complete or absent: built aside, then moved.
fn build_into(workspace: &Workspace, kept: &Path, pages: &Path) -> Result<()> {
    fs::create_dir_all(kept).with_context(|| format!("cannot create {}", kept.display()))?;
    let aside = tempfile::Builder::new().prefix("building-").tempdir_in(kept)?;
    let dist = aside.path().join("dist");
    bundle(workspace, &dist)?;
    precompress(&dist)?;
    // Another clone may have been faster.
    if fs::rename(&dist, pages).is_err() && !pages.is_dir() {
        bail!("the pages cannot be moved to {}", pages.display());
    }
    Ok(())
}

/// A folder that cannot be removed is only wasted space.
fn forget_old(kept: &Path, current: &Path) {
    let Ok(entries) = fs::read_dir(kept) else { return };
    let mut others: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let building = entry.file_name().to_string_lossy().starts_with("building-");
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok()?;
            (!building && entry.path() != current).then(|| (modified, entry.path()))
        })
        .collect();
    others.sort();
    others.reverse();
    for (_, path) in others.into_iter().skip(KEPT - 1) {
        fs::remove_dir_all(path).ok();
    }
}
