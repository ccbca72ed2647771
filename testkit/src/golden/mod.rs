//! Checks against golden vectors, driven by their data.
//!
//! The same functions run natively, in a browser on the CPU, and in a browser on WebGPU. Files come from a
//! function, so that they may lie in a [`folder`] or inside the program. What the files hold and which tolerances
//! belong to them is said in the vectors' own README.

mod adamw;
mod aggregate;
mod block;
mod compare;
mod decode;
mod files;
mod folder;
mod gpt2;
mod pipeline;
mod report;
mod schedule;
mod splits;
mod tolerances;

pub use files::GoldenError;
pub use folder::{Folder, folder, is_own, require_all};
pub use report::Report;
pub use splits::{Scope, Splits};
pub use tolerances::{Tolerances, require_justified};

use engine::{device::Device, parameters::ParameterSet};
use protocol::spec::{Hop, ModelSpec, Moments};

/// Gives a file's bytes by its name; None if there is no such file.
pub type Source<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// Fingerprint of the weights that seed 2026 draws for the model of [`drawn_model`]: the same on every
/// platform.
pub const DRAWN: u64 = 12_613_906_057_712_327_219;

/// A small model whose drawn weights are compared between platforms.
pub fn drawn_model() -> ModelSpec {
    ModelSpec { vocabulary: 256, positions: 64, width: 48, heads: 3, layers: 3, tie_embeddings: false }
}

/// The fingerprint to compare with [`DRAWN`].
///
/// # Errors
///
/// [`GoldenError::Parameters`] when the weights cannot be read.
pub async fn drawn() -> Result<u64, GoldenError> {
    let model = drawn_model();
    let hops = [Hop { index: 0, part: model.whole() }];
    let file = ParameterSet::draw(&model, &hops, 2026, &Device::Cpu).export(Moments::None).await?;
    // FNV-1a.
    Ok(file.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// Checks everything among `names` that this crate can compute: `adamw.json`, `schedule.json`,
/// `aggregate.json`, `decode.json` and every set `block-*.json` and `gpt2-*.json`.
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
        let Some(set) = name.strip_suffix(".json") else { continue };
        match set {
            "adamw" => adamw::check(source, device, tolerances, &mut report).await?,
            "schedule" => schedule::check(source, &mut report)?,
            "aggregate" => aggregate::check(source, &mut report)?,
            "decode" => decode::check(source, device, &mut report).await?,
            _ if set.starts_with("block-") => {
                block::check(set, source, device, tolerances, &mut report).await?;
            }
            _ if set.starts_with("gpt2-") => {
                gpt2::check(set, source, device, tolerances, scope, &mut report).await?;
            }
            _ => continue,
        }
        sets += 1;
    }
    if sets == 0 {
        return Err(GoldenError::Nothing);
    }
    report.outcome()
}
