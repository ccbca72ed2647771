//! `run.toml`: what the organizer asks for.
//!
//! Reading it finds all faults at once, each with its line, its field and what to do about it.

mod block_rules;
pub mod fault;
mod read;
mod rules;
pub mod types;

use std::path::Path;

use protocol::spec::{BlockSpec, ModelSpec, OptimizerSpec, RunSpec};

use crate::data::corpus::Source;
pub use fault::ConfigFault;
use read::Reading;
pub use types::*;

impl Default for RunConfig {
    /// The run of an empty `run.toml`.
    fn default() -> Self {
        rules::config(&mut Reading::new("", ""))
    }
}

impl RunConfig {
    /// Read and check the text of a `run.toml`; `file_name` is for the faults' words. Touches no disk.
    ///
    /// Every field is optional; an empty text is the default run.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, Vec<ConfigFault>> {
        let mut reading = Reading::new(text, file_name);
        let config = rules::config(&mut reading);
        reading.finish(config)
    }

    /// Read the file at `path` and check it, also against the disk: the corpus and the tokenizer's files must be
    /// there. Relative paths in it count from its own folder; here they get it in front.
    pub fn load(path: &Path) -> Result<Self, Vec<ConfigFault>> {
        let file_name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| {
            let message = format!("cannot be read ({e}); give the path of a run.toml in UTF-8");
            vec![ConfigFault { file: file_name.clone(), line: None, field: String::new(), message }]
        })?;
        let mut reading = Reading::new(&text, &file_name);
        let mut config = rules::config(&mut reading);
        let folder = path.parent().unwrap_or(Path::new(""));
        if let Source::Path(source) = &mut config.data.source {
            *source = folder.join(&*source);
            if !source.exists() {
                let message = format!(
                    "there is no file or folder {}; give the path of a text, or \"webster\" for the built-in one",
                    source.display()
                );
                reading.fault("data.source", message);
            }
        }
        if let Some(files) = &mut config.data.tokenizer_files {
            *files = folder.join(&*files);
            for file in ["encoder.json", "vocab.bpe"].map(|name| files.join(name)) {
                if !file.is_file() {
                    let message = format!(
                        "there is no file {}; give the folder of encoder.json and vocab.bpe, or leave the field out",
                        file.display()
                    );
                    reading.fault("data.tokenizer_files", message);
                }
            }
        }
        reading.finish(config)
    }

    /// The run as a `run.toml` with every field spelled out; [`RunConfig::parse`] gives the same run back.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut table = toml::Table::try_from(self)?;
        // What is of the other mode may not stand in the file.
        let others: &[&str] = match self.mode {
            ModeName::Pipeline => &["blocks", "rounds"],
            ModeName::Block => &["pipeline"],
        };
        others.iter().for_each(|section| drop(table.remove(*section)));
        toml::to_string(&table)
    }

    /// What workers must know, with V from the run's tokenizer.
    pub fn run_spec(&self, vocabulary: u32) -> RunSpec {
        let Self { name, model, training, pipeline, .. } = self;
        RunSpec {
            name: name.clone(),
            model: ModelSpec {
                vocabulary,
                positions: model.context,
                width: model.width,
                heads: model.heads,
                layers: model.layers,
                tie_embeddings: model.tie_embeddings,
            },
            optimizer: OptimizerSpec {
                beta1: training.beta1,
                beta2: training.beta2,
                epsilon: training.epsilon,
                weight_decay: training.weight_decay,
                clip_norm: training.clip_norm,
            },
            sequences: training.sequences,
            context: training.context,
            micro_batches: training.micro_batches.unwrap_or(0),
            recompute: pipeline.recompute,
            wire: pipeline.wire,
            moments: self.snapshots.moments,
            blocks: (self.mode == ModeName::Block).then(|| BlockSpec {
                count: self.blocks.count,
                sigma_min: self.blocks.sigma_min,
                sigma_max: self.blocks.sigma_max,
                p_mean: self.blocks.p_mean,
                p_std: self.blocks.p_std,
                gamma: self.blocks.gamma,
                delta: self.rounds.encoding(),
            }),
        }
    }
}
