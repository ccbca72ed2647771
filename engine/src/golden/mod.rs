//! Checks against golden vectors, driven by their data.
//!
//! The same functions run natively, in a browser on the CPU, and in a browser on WebGPU. Files come from a
//! function, so that they may lie in a folder or inside the program. What the files hold and which tolerances
//! belong to them is said in the vectors' own README.

mod adamw;
mod files;
mod gpt2;
mod pipeline;
mod report;
mod splits;
mod tolerances;

pub use files::GoldenError;
pub use report::Report;
pub use splits::{Scope, Splits};
pub use tolerances::Tolerances;

use crate::device::Device;

/// Gives a file's bytes by its name; None if there is no such file.
pub type Source<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// Checks everything among `names` that this crate can compute: `adamw.json` and every set `gpt2-*.json`.
///
/// # Errors
///
/// [`GoldenError`] when a file is missing or malformed, when there is nothing to check, or when a result lies
/// outside its tolerance; then with every such result in words.
pub async fn check(
    names: &[&str],
    source: Source<'_>,
    device: &Device,
    tolerances: &Tolerances,
    scope: &Scope,
) -> Result<Report, GoldenError> {
    let mut report = Report::default();
    let mut sets = 0;
    for name in names {
        if *name == "adamw.json" {
            sets += 1;
            adamw::check(source, device, tolerances, &mut report).await?;
        } else if let Some(set) = name.strip_suffix(".json").filter(|set| set.starts_with("gpt2-")) {
            sets += 1;
            gpt2::check(set, source, device, tolerances, scope, &mut report).await?;
        }
    }
    if sets == 0 {
        return Err(GoldenError::Nothing);
    }
    report.outcome()
}
