//! `cohort generate`: continue a text with a checkpoint.

use std::{fs, io::Write, path::Path};

use anyhow::Context;
use engine::{
    checkpoint::Checkpoint,
    device::Device,
    generate::{Generator, Sampling},
};

use crate::data::tokenizer::{SavedTokenizer, Tokenizer};

/// Write the prompt and its continuation by `tokens` tokens to `out`.
pub fn generate(
    folder: &Path,
    prompt: &str,
    tokens: u32,
    sampling: Sampling,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read(&path).with_context(|| {
            format!(
                "{} cannot be read; give the folder of a checkpoint, such as checkpoints/step-000100",
                path.display()
            )
        })
    };
    let saved: SavedTokenizer = serde_json::from_slice(&read("tokenizer.cohort.json")?)
        .with_context(|| format!("{} is damaged", folder.join("tokenizer.cohort.json").display()))?;
    let tokenizer = Tokenizer::restore(&saved, None)?;
    let config = String::from_utf8(read("config.json")?).context("config.json is not UTF-8")?;
    let checkpoint = Checkpoint { config, weights: read("model.safetensors")? };
    let (model, parameters) = checkpoint.load(&Device::Host)?;
    let prompt_ids = tokenizer.encode(prompt)?;
    anyhow::ensure!(!prompt_ids.is_empty(), "the prompt is empty; give at least one character with --prompt");
    let generator = Generator::new(&model, parameters, &Device::Host)?;
    // Characters may take several tokens: text is written as far as it is whole.
    out.write_all(prompt.as_bytes())?;
    let (mut ids, mut written) = (Vec::new(), 0);
    let mut failed = None;
    let told = |token| {
        ids.push(token);
        let result = (|| -> anyhow::Result<()> {
            let bytes = tokenizer.decode(&ids)?;
            let whole = match std::str::from_utf8(&bytes) {
                Ok(_) => bytes.len(),
                Err(e) if e.error_len().is_none() => e.valid_up_to(),
                Err(_) => bytes.len(),
            };
            if whole > written {
                out.write_all(&bytes[written..whole])?;
                out.flush()?;
                written = whole;
            }
            Ok(())
        })();
        failed = result.err();
        failed.is_none()
    };
    futures::executor::block_on(generator.generate(&prompt_ids, tokens as usize, sampling, told))?;
    match failed {
        Some(e) => Err(e),
        None => Ok(()),
    }
}
