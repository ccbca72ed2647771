//! Texts of a GPT-2: token by token, with a cache of keys and values.

use std::{io::Write, path::Path};

use anyhow::ensure;
use engine::{
    device::Device,
    generate::{Decoder, Request, Sampling},
};
use futures::executor::block_on;

use super::{Arguments, Way, printer::Printer, score_in_words, windows};
use crate::model_folder::{self, FolderModel};

pub(super) fn run(
    arguments: &Arguments,
    place: &Path,
    out: &mut impl Write,
    told: &mut impl FnMut(String),
) -> anyhow::Result<()> {
    let way = match arguments.way {
        Way::Tokens => None,
        Way::Chunks => Some("chunks"),
        Way::Sweep => Some("sweep"),
    };
    ensure!(
        way.is_none(),
        "--way {} is of block mode, and this model is not; leave it out",
        way.unwrap_or_default()
    );
    let FolderModel { model, checkpoint, tokenizer } = model_folder::read(place)?;
    let (_, parameters) = checkpoint.load(&Device::Cpu)?;
    let (prompt, ids) = arguments.prompt(&tokenizer)?;
    let mut decoder = Decoder::new(&model, parameters, &Device::Cpu)?;
    let positions = model.positions as usize;
    if arguments.score {
        let logs = score(&mut decoder, &ids, positions)?;
        let how = "each after the tokens before it, in windows of as many as the model reads";
        return Ok(out.write_all(score_in_words(&logs, how)?.as_bytes())?);
    }
    let count = arguments.tokens as usize;
    if ids.len() + count > positions + 1 {
        told(format!(
            "The model reads {positions} tokens at a time. From there on the window slides with every token, all of it \
             is computed again for each, and text comes much slower."
        ));
    }
    out.write_all(prompt.as_bytes())?;
    let mut printer = Printer::new(&tokenizer, out);
    let request = Request { drafts: arguments.drafts, ..Request::new(ids, count, arguments.sampling()) };
    let tokens = block_on(decoder.write(request, |token| printer.tokens(&[token.id])))?;
    printer.end()?;
    told(format!("\n{} tokens in {} passes through the model.", tokens.len(), decoder.traversals()));
    Ok(())
}

/// ln of the probability of every token but the first.
fn score(decoder: &mut Decoder, ids: &[u32], positions: usize) -> anyhow::Result<Vec<f64>> {
    let mut logs = Vec::new();
    for window in windows(ids, positions) {
        let request = Request { score_prompt: true, ..Request::new(window.to_vec(), 0, Sampling::GREEDY) };
        decoder.open(request)?;
        while decoder.open_texts() > 0 {
            let steps = block_on(decoder.step())?;
            logs.extend(
                steps.iter().flat_map(|step| &step.progress.prompt).map(|token| token.log_probability),
            );
        }
    }
    Ok(logs)
}
