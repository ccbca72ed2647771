//! Chromium without a window: where it is and how it is started. Shared by `run --demo` and the tests.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use crate::workspace::find_in;

const BROWSERS: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

#[cfg(target_os = "macos")]
const MAC_BROWSERS: [&str; 2] = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
];

const FLAGS: [&str; 10] = [
    "--headless=new",
    // Containers have a small /dev/shm.
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    // A software adapter, so that WebGPU can be tried on a computer without a graphics card.
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    // Several tabs of one browser share the screen: those in the background must train on.
    "--disable-backgrounding-occluded-windows",
];

/// The browser: the one named by CHROME, or the first on the path.
pub fn find(path: &OsStr) -> Option<PathBuf> {
    let named = named_by("CHROME");
    #[cfg(target_os = "macos")]
    let named = named.or_else(|| MAC_BROWSERS.iter().map(PathBuf::from).find(|browser| browser.is_file()));
    named.or_else(|| BROWSERS.iter().find_map(|name| find_in(path, name)))
}

/// Its WebDriver: the one named by CHROMEDRIVER, or the one on the path.
pub fn find_driver(path: &OsStr) -> Option<PathBuf> {
    named_by("CHROMEDRIVER").or_else(|| find_in(path, "chromedriver"))
}

fn named_by(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|program| program.is_file())
}

/// Flags for a browser of its own, with its profile in this folder.
pub fn flags(profile: &Path, root: bool) -> Vec<String> {
    let mut flags: Vec<_> = FLAGS.map(String::from).into();
    if root {
        // Chromium's sandbox refuses to start for root.
        flags.push("--no-sandbox".into());
    }
    flags.push(format!("--user-data-dir={}", profile.display()));
    flags
}
