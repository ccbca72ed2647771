//! A model that writes, from a run's newest checkpoint.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use engine::{Device, checkpoint::Checkpoint, denoiser::sweep::Composed, generate::Decoder};
use futures::executor::block_on;
use protocol::spec::RunSpec;

use crate::storage::checkpoint;

/// Rows of one prompt that go through the model at a time: others that are being written go on meanwhile.
const PROMPT_ROWS: usize = 64;

/// A checkpoint: where it lies, and after how many steps it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) folder: PathBuf,
    pub(super) step: u64,
}

/// What writes, by the run's mode.
pub(super) enum Model {
    /// A GPT-2: several texts in one batch.
    Gpt2(Box<Decoder>),
    /// Blocks: sweep by sweep, one text at a time.
    Blocks(Composed),
}

impl Newest {
    /// The newest checkpoint in a folder of them; None before the first.
    pub(super) fn of(checkpoints: &Path) -> Option<Self> {
        let folder = checkpoint::list(checkpoints).ok()?.pop()?;
        let step = folder.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok()?;
        Some(Self { folder, step })
    }

    /// Reads the model of this run.
    pub(super) fn load(&self, run: &RunSpec) -> anyhow::Result<Model> {
        let path = |name: &str| self.folder.join(name);
        let read = |name: &str| {
            fs::read(path(name)).with_context(|| format!("{} cannot be read", path(name).display()))
        };
        let weights = read("model.safetensors")?;
        if run.blocks.is_some() {
            return Ok(Model::Blocks(block_on(Composed::import(run, &[weights], &Device::Cpu))?));
        }
        let config = String::from_utf8(read("config.json")?).context("config.json is not UTF-8")?;
        let (found, parameters) = Checkpoint { config, weights }.load(&Device::Cpu)?;
        ensure!(found == run.model, "{} is of another model than this run's", self.folder.display());
        let decoder = Decoder::new(&found, parameters, &Device::Cpu)?;
        Ok(Model::Gpt2(Box::new(decoder.in_pieces_of(PROMPT_ROWS))))
    }
}
