//! A model that writes: from a run's newest checkpoint, or on the workers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use engine::{
    Device,
    checkpoint::Checkpoint,
    denoiser::sweep::Composed,
    generate::{Decoder, Request, Step, TextId},
    gpt2::StageError,
};
use futures::executor::block_on;
use protocol::spec::RunSpec;
use rayon::ThreadPool;

use super::over_workers::{OverWorkers, OverWorkersError};
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
    Gpt2(Gpt2),
    /// Blocks: sweep by sweep, one text at a time.
    Blocks(Composed),
}

/// Where a GPT-2 is computed.
pub(super) enum Gpt2 {
    /// Here.
    Here(Box<Decoder>),
    /// On the workers that hold it.
    Workers(OverWorkers),
}

impl Gpt2 {
    /// Begins a text.
    ///
    /// # Errors
    /// For a request that does not fit the model.
    pub(super) fn open(&mut self, request: Request) -> Result<TextId, StageError> {
        match self {
            Gpt2::Here(decoder) => decoder.open(request),
            Gpt2::Workers(workers) => workers.open(request),
        }
    }

    /// Ends a text before it is finished.
    pub(super) fn close(&mut self, text: TextId) {
        match self {
            Gpt2::Here(decoder) => decoder.close(text),
            Gpt2::Workers(workers) => workers.close(text),
        }
    }

    /// Advances all texts by one traversal; on the workers none while it is under way.
    ///
    /// # Errors
    /// When no text can go on.
    pub(super) fn step(&mut self, pool: &ThreadPool) -> Result<Vec<Step>, OverWorkersError> {
        match self {
            Gpt2::Here(decoder) => Ok(pool.install(|| block_on(decoder.step()))?),
            Gpt2::Workers(workers) => workers.step(),
        }
    }

    /// No text is open.
    pub(super) fn idle(&mut self) {
        if let Gpt2::Workers(workers) = self {
            workers.tell_ended();
        }
    }
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
        Ok(Model::Gpt2(Gpt2::Here(Box::new(decoder.in_pieces_of(PROMPT_ROWS)))))
    }
}
