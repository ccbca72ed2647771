//! A folder with a whole model: a GPT-2, as a checkpoint of ours or one of Hugging Face's `transformers`, or blocks.
//!
//! ```text
//! mod.rs              reading a GPT-2: config.json, the weights in one file or several, the tokenizer
//! blocks.rs           a model of block mode, read and written
//! tokenizer_json.rs   the tokenizer as the library `tokenizers` writes it
//! export.rs           a folder that `transformers` loads
//! gguf.rs             a GGUF file
//! ```

pub(crate) mod blocks;
pub(crate) mod export;
pub(crate) mod gguf;
#[cfg(test)]
mod tests;
mod tokenizer_json;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use engine::{
    checkpoint::{self, Checkpoint, CheckpointError},
    denoiser::{BlockError, config::ConfigError},
};
use protocol::spec::ModelSpec;
use serde::Deserialize;

use crate::data::{
    gpt2::{Gpt2, MERGES_FILE, VOCABULARY_FILE},
    tokenizer::{SavedTokenizer, Tokenizer, TokenizerError},
};

/// Sizes and variant of the model.
pub(crate) const CONFIG: &str = "config.json";
/// All weights.
pub(crate) const WEIGHTS: &str = "model.safetensors";
/// Which of several files has which tensor.
const INDEX: &str = "model.safetensors.index.json";
/// Our own note of the tokenizer.
pub(crate) const TOKENIZER: &str = "tokenizer.cohort.json";
/// The tokenizer as the library `tokenizers` writes it.
const TOKENIZER_JSON: &str = "tokenizer.json";

/// Why a folder's model cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error(
        "{folder} has no {name}; give the folder of a checkpoint, such as checkpoints/step-000100, or of a GPT-2 that \
         transformers has saved"
    )]
    Missing { folder: PathBuf, name: &'static str },
    #[error(
        "{folder} has its weights in pytorch_model.bin only, which can hold programs; have transformers save it again \
         with safe_serialization=True"
    )]
    Pickled { folder: PathBuf },
    #[error("{folder} is not whole: {INDEX} names {name}, which is not there")]
    Shard { folder: PathBuf, name: String },
    #[error("{path} cannot be read: {error}")]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    #[error("{folder} cannot be used: {error}")]
    Model { folder: PathBuf, error: CheckpointError },
    #[error(
        "{folder} has a model of block mode, which is no GPT-2; give the folder of a checkpoint of pipeline mode, or of a \
         GPT-2 that transformers has saved"
    )]
    NoGpt2 { folder: PathBuf },
    #[error("{folder} cannot be used: {error}")]
    BlockConfig { folder: PathBuf, error: ConfigError },
    #[error("{folder} cannot be used: {error}")]
    Blocks { folder: PathBuf, error: BlockError },
    #[error(
        "{folder} has no tokenizer; it needs {VOCABULARY_FILE} and {MERGES_FILE}, or {TOKENIZER_JSON}, as transformers \
         saves them"
    )]
    NoTokenizer { folder: PathBuf },
    #[error("the tokenizer in {folder} cannot be used: {reason}")]
    Tokenizer { folder: PathBuf, reason: String },
    #[error(
        "{folder} does not fit together: its model has a vocabulary of {model}, its tokenizer one of {tokenizer}"
    )]
    Vocabulary { folder: PathBuf, model: u32, tokenizer: u32 },
}

/// A model with what reads and writes its tokens.
#[derive(Debug)]
pub(crate) struct FolderModel {
    /// Sizes.
    pub(crate) model: ModelSpec,
    /// Its weights in f32.
    pub(crate) checkpoint: Checkpoint,
    /// Its tokens.
    pub(crate) tokenizer: Tokenizer,
}

/// Sizes of the model in a folder; its weights are not looked at.
///
/// # Errors
/// A folder without the file, or one of another architecture.
pub(crate) fn model(folder: &Path) -> Result<ModelSpec, FolderError> {
    if blocks::run(folder)?.is_some() {
        return Err(FolderError::NoGpt2 { folder: folder.into() });
    }
    let config = text(folder, CONFIG)?.ok_or_else(|| missing(folder, CONFIG))?;
    checkpoint::model(&config).map_err(|error| FolderError::Model { folder: folder.into(), error })
}

/// The whole folder.
///
/// # Errors
/// What is missing, damaged or of another kind, in words.
pub(crate) fn read(folder: &Path) -> Result<FolderModel, FolderError> {
    let model = model(folder)?;
    let config = text(folder, CONFIG)?.ok_or_else(|| missing(folder, CONFIG))?;
    let checkpoint = Checkpoint::import(&config, &weights(folder)?)
        .map_err(|error| FolderError::Model { folder: folder.into(), error })?;
    let tokenizer = tokenizer(folder)?;
    let vocabulary = tokenizer.vocabulary();
    if vocabulary != model.vocabulary {
        let (folder, model) = (folder.into(), model.vocabulary);
        return Err(FolderError::Vocabulary { folder, model, tokenizer: vocabulary });
    }
    Ok(FolderModel { model, checkpoint, tokenizer })
}

fn missing(folder: &Path, name: &'static str) -> FolderError {
    FolderError::Missing { folder: folder.into(), name }
}

/// A file's bytes; None where there is no such file.
fn bytes(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, FolderError> {
    let path = folder.join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FolderError::Unreadable { path, error }),
    }
}

fn text(folder: &Path, name: &str) -> Result<Option<String>, FolderError> {
    let Some(bytes) = bytes(folder, name)? else { return Ok(None) };
    let damaged = |_| FolderError::Damaged { path: folder.join(name), reason: "it is not UTF-8".into() };
    String::from_utf8(bytes).map(Some).map_err(damaged)
}

/// The files of the weights.
fn weights(folder: &Path) -> Result<Vec<Vec<u8>>, FolderError> {
    if let Some(whole) = bytes(folder, WEIGHTS)? {
        return Ok(vec![whole]);
    }
    let Some(index) = text(folder, INDEX)? else {
        return Err(match folder.join("pytorch_model.bin").exists() {
            true => FolderError::Pickled { folder: folder.into() },
            false => missing(folder, WEIGHTS),
        });
    };
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let damaged = |reason: String| FolderError::Damaged { path: folder.join(INDEX), reason };
    let index: Index = serde_json::from_str(&index).map_err(|error| damaged(error.to_string()))?;
    let names: BTreeSet<String> = index.weight_map.into_values().collect();
    names
        .into_iter()
        .map(|name| {
            // A file of the folder itself, and nothing that the index leads to elsewhere.
            if Path::new(&name).file_name().is_none_or(|plain| plain != name.as_str()) {
                return Err(damaged(format!("`{name}` is not the name of a file in the folder")));
            }
            bytes(folder, &name)?.ok_or_else(|| FolderError::Shard { folder: folder.into(), name })
        })
        .collect()
}

/// The tokenizer in a folder: by our own note where there is one, else what transformers has saved.
///
/// # Errors
/// A tokenizer that is missing, damaged or of another kind.
pub(crate) fn tokenizer(folder: &Path) -> Result<Tokenizer, FolderError> {
    let unusable = |reason: String| FolderError::Tokenizer { folder: folder.into(), reason };
    if let Some(saved) = bytes(folder, TOKENIZER)? {
        let saved: SavedTokenizer = serde_json::from_slice(&saved).map_err(|error| FolderError::Damaged {
            path: folder.join(TOKENIZER),
            reason: error.to_string(),
        })?;
        let files = folder.join(VOCABULARY_FILE).exists().then_some(folder);
        return Tokenizer::restore(&saved, files).map_err(|error| unusable(error.to_string()));
    }
    let [vocabulary, merges] = match (text(folder, VOCABULARY_FILE)?, text(folder, MERGES_FILE)?) {
        (Some(vocabulary), Some(merges)) => [vocabulary, merges],
        _ => match text(folder, TOKENIZER_JSON)? {
            Some(json) => tokenizer_json::bpe_files(&json).map_err(unusable)?,
            None => return Err(FolderError::NoTokenizer { folder: folder.into() }),
        },
    };
    let gpt2 =
        Gpt2::parse(vocabulary, merges).map_err(|error| unusable(TokenizerError::Gpt2(error).to_string()))?;
    Ok(Tokenizer::of_gpt2(gpt2))
}
