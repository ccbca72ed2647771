//! A folder that `transformers` loads by `AutoModelForCausalLM` and `AutoTokenizer`, and that reads as a checkpoint here.

use std::{fs, path::Path};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{CONFIG, FolderModel, TOKENIZER, TOKENIZER_JSON, WEIGHTS, tokenizer_json};
use crate::{
    data::tokenizer::Tokenizer,
    storage::{HALF, sync_folder, write_atomically},
};

/// Writes the model to a new folder, which appears under its name when it is whole.
///
/// # Errors
/// A folder that is there already, or a disk that does not take it; in words.
pub(crate) fn transformers(model: &FolderModel, out: &Path) -> anyhow::Result<()> {
    let mut config: Value = serde_json::from_str(&model.checkpoint.config)?;
    let end = model.tokenizer.as_gpt2().and_then(|gpt2| gpt2.known_end_of_text());
    config["bos_token_id"] = json!(end);
    config["eos_token_id"] = json!(end);
    let mut files = vec![(CONFIG, pretty(&config))];
    files.extend(tokenizer_files(&model.tokenizer, model.model.positions)?);
    folder(out, |half| {
        for (name, bytes) in &files {
            write_atomically(&half.join(name), bytes)?;
        }
        write_atomically(&half.join(WEIGHTS), &model.checkpoint.weights)
    })
}

/// The files of a tokenizer, for transformers and for ourselves; `most` are the tokens that the model reads.
///
/// # Errors
/// Files of the BPE that are not what they were when it was made.
pub(super) fn tokenizer_files(
    tokenizer: &Tokenizer,
    most: u32,
) -> Result<Vec<(&'static str, Vec<u8>)>, serde_json::Error> {
    let (library, end_of_text) = tokenizer_json::of(tokenizer)?;
    let config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end_of_text,
        "eos_token": end_of_text,
        "clean_up_tokenization_spaces": false,
        "model_max_length": most,
    });
    let mut files = vec![
        (TOKENIZER_JSON, pretty(&library)),
        ("tokenizer_config.json", pretty(&config)),
        (TOKENIZER, serde_json::to_vec_pretty(&tokenizer.save())?),
    ];
    files.extend(tokenizer.files().into_iter().map(|(name, text)| (name, text.as_bytes().to_vec())));
    Ok(files)
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

/// Makes a folder that appears under its name when `fill` has filled it.
///
/// # Errors
/// A folder that is there already, or a disk that does not take it; in words.
pub(crate) fn folder(out: &Path, fill: impl FnOnce(&Path) -> std::io::Result<()>) -> anyhow::Result<()> {
    ensure!(!out.exists(), "{} is there already; give the name of a new folder with --out", out.display());
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let written = || -> std::io::Result<()> {
        fs::create_dir_all(parent)?;
        let half = tempfile::Builder::new().prefix(HALF).tempdir_in(parent)?;
        fill(half.path())?;
        fs::rename(half.path(), out)?;
        // It is under its own name now: nothing is left to remove.
        let _ = half.keep();
        sync_folder(parent)
    };
    written().with_context(|| format!("{} cannot be written", out.display()))
}
