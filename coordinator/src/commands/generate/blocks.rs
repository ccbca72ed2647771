//! Texts of a model of block mode: in sweeps of one, several or all tokens.

use std::{fs, io::Write, path::Path};

use anyhow::{Context, ensure};
use engine::{
    denoiser::{sweep::Composed, write::Continuation},
    device::Device,
};
use futures::executor::block_on;
use protocol::spec::RunSpec;

use super::{Arguments, Way, printer::Printer, score_in_words, windows};
use crate::model_folder::{self, WEIGHTS};

pub(super) fn run(
    arguments: &Arguments,
    place: &Path,
    run: &RunSpec,
    out: &mut impl Write,
    told: &mut impl FnMut(String),
) -> anyhow::Result<()> {
    let tokenizer = model_folder::tokenizer(place)?;
    let path = place.join(WEIGHTS);
    let weights = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let (prompt, ids) = arguments.prompt(&tokenizer)?;
    let model = block_on(Composed::import(run, &[weights], &Device::Cpu))?;
    let context = run.context as usize;
    if arguments.score {
        let mut logs = Vec::new();
        for window in windows(&ids, context + 1) {
            logs.extend(block_on(model.score(window, arguments.seed))?);
        }
        let how = "each from noise after the true tokens before it, by one sweep for each window of as many as it reads";
        return Ok(out.write_all(score_in_words(&logs, how)?.as_bytes())?);
    }
    let count = arguments.tokens as usize;
    let (chunk, field) = match arguments.way {
        Way::Tokens => (1, "--way"),
        Way::Chunks => ((arguments.chunk as usize).min(count), "--chunk"),
        Way::Sweep => (count, "--tokens"),
    };
    ensure!(
        chunk <= context,
        "one sweep writes at most {context} tokens, as many as the model reads; give {field} at most {context}, or write \
         with --way tokens"
    );
    told(match arguments.way {
        Way::Tokens => "Token by token: each by one sweep over the tokens before it.".to_owned(),
        Way::Chunks => format!(
            "{chunk} tokens a sweep. The tokens of a chunk do not know of each other, only of guesses: fewer passes, and \
             poorer text."
        ),
        Way::Sweep => "All tokens by one sweep. They do not know of each other, only of guesses: the fewest passes, and \
                       the poorest text."
            .to_owned(),
    });
    out.write_all(prompt.as_bytes())?;
    let mut printer = Printer::new(&tokenizer, out);
    let sampling = arguments.sampling();
    let wanted = Continuation { prompt: &ids, count, chunk, context, sampling };
    let (tokens, sweeps) = block_on(model.write(wanted, |tokens| printer.tokens(tokens)))?;
    printer.end()?;
    let s = if sweeps == 1 { "" } else { "s" };
    let (tokens, blocks) = (tokens.len(), model.blocks().len());
    told(format!("\n{tokens} tokens in {sweeps} sweep{s} through {blocks} blocks."));
    Ok(())
}
