//! A model that writes, from a run's newest checkpoint.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use engine::{Device, checkpoint::Checkpoint, generate::Decoder};
use protocol::spec::{ModelSpec, RunSpec};

use crate::storage::checkpoint;

/// Rows of one prompt that go through the model at a time: others that are being written go on meanwhile.
const PROMPT_ROWS: usize = 64;

/// A checkpoint: where it lies, and after how many steps it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) folder: PathBuf,
    pub(super) step: u64,
}

impl Newest {
    /// The newest checkpoint in a folder of them; None before the first.
    pub(super) fn of(checkpoints: &Path) -> Option<Self> {
        let folder = checkpoint::list(checkpoints).ok()?.pop()?;
        let step = folder.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()?;
        Some(Self { folder, step })
    }

    /// Reads the model.
    pub(super) fn load(&self, model: &ModelSpec) -> anyhow::Result<Decoder> {
        let path = |name: &str| self.folder.join(name);
        let config = fs::read_to_string(path("config.json"))
            .with_context(|| format!("{} cannot be read", path("config.json").display()))?;
        if serde_json::from_str::<RunSpec>(&config).is_ok_and(|run| run.blocks.is_some()) {
            bail!("this run is in block mode, whose models do not write texts here yet");
        }
        let weights = fs::read(path("model.safetensors"))
            .with_context(|| format!("{} cannot be read", path("model.safetensors").display()))?;
        let (found, parameters) = Checkpoint { config, weights }.load(&Device::Cpu)?;
        if found != *model {
            bail!("{} is of another model than this run's", self.folder.display());
        }
        Ok(Decoder::new(&found, parameters, &Device::Cpu)?.in_pieces_of(PROMPT_ROWS))
    }
}
