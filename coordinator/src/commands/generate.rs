//! `cohort generate`: continue a text with a checkpoint.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use crate::{
    model_folder::{self, FolderModel},
    storage::checkpoint,
};
use engine::{
    device::Device,
    generate::{Decoder, Request, Sampling},
};

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Folder of a checkpoint, such as cohort-data/<run>/checkpoints/step-000100, or of a run, for its newest.
    checkpoint: PathBuf,
    /// The text to continue [default: an empty line, or where the vocabulary has none its first character].
    #[arg(long)]
    prompt: Option<String>,
    /// Tokens to add.
    #[arg(long, default_value_t = 200)]
    tokens: u32,
    /// 0 always takes the likeliest token.
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    /// Choose among this many likeliest tokens; 0 is all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Choose among the fewest likeliest tokens that together have this share of the probability; 1 is all.
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Tokens to guess ahead where the text repeats itself; 0 is none. The text is the same, and comes faster.
    #[arg(long, default_value_t = 4)]
    drafts: usize,
    /// Of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { checkpoint, prompt, tokens, temperature, top_k, top_p, drafts, seed } = arguments;
    anyhow::ensure!((0.0..=1.0).contains(top_p), "--top-p is {top_p}; give a share between 0 and 1");
    let sampling = Sampling { temperature: *temperature, top_k: *top_k, top_p: *top_p, seed: *seed };
    let mut out = std::io::stdout().lock();
    generate(checkpoint, prompt.as_deref(), *tokens, sampling, *drafts, &mut out)?;
    Ok(writeln!(out)?)
}

/// Write the prompt and its continuation by `tokens` tokens to `out`.
fn generate(
    folder: &Path,
    prompt: Option<&str>,
    tokens: u32,
    sampling: Sampling,
    drafts: usize,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let place = checkpoint::of_folder(folder)?;
    checkpoint::refuse_block_mode(&place, "continued with generate yet")?;
    let FolderModel { model, checkpoint, tokenizer } = model_folder::read(&place)?;
    let (_, parameters) = checkpoint.load(&Device::Cpu)?;
    let usual = tokenizer.usual_prompt();
    let prompt = prompt.unwrap_or(&usual);
    let prompt_ids = tokenizer.encode(prompt)?;
    anyhow::ensure!(!prompt_ids.is_empty(), "the prompt is empty; give at least one character with --prompt");
    let mut decoder = Decoder::new(&model, parameters, &Device::Cpu)?;
    let positions = model.positions as usize;
    if prompt_ids.len() + tokens as usize > positions + 1 {
        eprintln!(
            "The model sees {positions} tokens at a time. From there on the window slides with every token, all of \
             it is computed again for each, and text comes much slower."
        );
    }
    // Characters may take several tokens: text is written as far as it is whole.
    out.write_all(prompt.as_bytes())?;
    let (mut ids, mut written) = (Vec::new(), 0);
    let mut failed = None;
    let told = |token: &engine::generate::Token| {
        ids.push(token.id);
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
    let request = Request { drafts, ..Request::new(prompt_ids, tokens as usize, sampling) };
    futures::executor::block_on(decoder.write(request, told))?;
    match failed {
        Some(e) => Err(e),
        None => Ok(()),
    }
}
