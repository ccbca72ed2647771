//! `cohort generate`: continue a text with a checkpoint, or say how likely it is.

mod blocks;
mod pipeline;
mod printer;

use std::{io::Write, path::PathBuf};

use anyhow::ensure;
use engine::generate::Sampling;

use crate::{data::tokenizer::Tokenizer, model_folder, storage::checkpoint};

/// What the command line says.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Folder of a checkpoint, such as cohort-data/<run>/checkpoints/step-000100, or of a run, for its newest; in pipeline
    /// mode also of a GPT-2 that transformers has saved.
    checkpoint: PathBuf,
    /// The text to continue [default: an empty line, or where the vocabulary has none its first character].
    #[arg(long)]
    prompt: Option<String>,
    /// Say how likely the prompt's own tokens are, and write nothing.
    #[arg(long, requires = "prompt")]
    score: bool,
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
    /// Tokens to guess ahead where the text repeats itself; 0 is none. The text is the same, and comes faster. In pipeline
    /// mode.
    #[arg(long, default_value_t = 4)]
    drafts: usize,
    /// How many tokens a pass through the model writes. In pipeline mode it is always one.
    #[arg(long, value_enum, default_value_t = Way::Tokens)]
    way: Way,
    /// Tokens of a sweep with `--way chunks`.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    chunk: u32,
    /// Of the draws, and in block mode of the noise.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// How a text of block mode is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// One sweep a token, each after all tokens before it.
    Tokens,
    /// One sweep for several tokens, which do not know of each other.
    Chunks,
    /// One sweep for all of them: fast, and poor.
    Sweep,
}

pub(super) fn command(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    // What was asked for is on stdout, and nothing else.
    run(arguments, &mut out, &mut |words| eprintln!("{words}"))?;
    Ok(writeln!(out)?)
}

/// Writes the text, or the score, to `out`; `told` hears what it is and what it cost.
fn run(arguments: &Arguments, out: &mut impl Write, told: &mut impl FnMut(String)) -> anyhow::Result<()> {
    let top_p = arguments.top_p;
    ensure!((0.0..=1.0).contains(&top_p), "--top-p is {top_p}; give a share between 0 and 1");
    let temperature = arguments.temperature;
    ensure!(
        temperature.is_finite() && temperature >= 0.0,
        "--temperature is {temperature}; give 0 or a number above"
    );
    let place = checkpoint::of_folder(&arguments.checkpoint)?;
    match model_folder::blocks::run(&place)? {
        Some(run) => blocks::run(arguments, &place, &run, out, told),
        None => pipeline::run(arguments, &place, out, told),
    }
}

impl Arguments {
    fn sampling(&self) -> Sampling {
        let Arguments { temperature, top_k, top_p, seed, .. } = *self;
        Sampling { temperature, top_k, top_p, seed }
    }

    /// The prompt and its tokens.
    fn prompt(&self, tokenizer: &Tokenizer) -> anyhow::Result<(String, Vec<u32>)> {
        let prompt = self.prompt.clone().unwrap_or_else(|| tokenizer.usual_prompt());
        let ids = tokenizer.encode(&prompt)?;
        ensure!(!ids.is_empty(), "the prompt is empty; give at least one character with --prompt");
        Ok((prompt, ids))
    }
}

/// How likely a text was, in words; `logs` are ln of the probabilities of its tokens but the first of every window.
fn score_in_words(logs: &[f64], how: &str) -> anyhow::Result<String> {
    ensure!(!logs.is_empty(), "a single token has no score; give a longer text with --prompt");
    let mean = -logs.iter().sum::<f64>() / logs.len() as f64;
    let (tokens, choices) = (logs.len(), mean.exp());
    Ok(format!(
        "cross-entropy {mean:.4} nats per token over {tokens} tokens, as if each were one of {choices:.1} equally likely \
         ones; {how}"
    ))
}

/// Windows of a text of at most `most` tokens, each beginning with the last token of the one before.
fn windows(ids: &[u32], most: usize) -> impl Iterator<Item = &[u32]> {
    let step = most.saturating_sub(1).max(1);
    (0..ids.len().saturating_sub(1))
        .step_by(step)
        .map(move |start| &ids[start..ids.len().min(start + step + 1)])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use engine::{checkpoint::Checkpoint, denoiser::Weights, device::Device, parameters::ParameterSet};
    use protocol::spec::{Hop, RunSpec};
    use testkit::fixtures;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// A checkpoint of this run, whose tokens are characters.
    fn checkpoint(run: &RunSpec) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (config, weights) = match run.blocks {
            Some(_) => {
                (serde_json::to_string(run).unwrap(), Weights::draw(run, 1).unwrap().whole_file().unwrap())
            }
            None => {
                let hops = [Hop { index: 0, part: run.model.whole() }];
                let parameters = ParameterSet::draw(&run.model, &hops, 1, &Device::Cpu);
                let made = futures::executor::block_on(Checkpoint::new(&run.model, &parameters)).unwrap();
                (made.config, made.weights)
            }
        };
        fs::write(folder.path().join("config.json"), config).unwrap();
        fs::write(folder.path().join("model.safetensors"), weights).unwrap();
        let tokenizer = r#"{"kind": "characters", "characters": "abcdefghijk"}"#;
        fs::write(folder.path().join("tokenizer.cohort.json"), tokenizer).unwrap();
        folder
    }

    /// What the command writes, and what it says beside.
    fn said(run: &RunSpec, words: &str) -> anyhow::Result<(String, String)> {
        let folder = checkpoint(run);
        let line = ["generate", folder.path().to_str().unwrap()].into_iter().chain(words.split_whitespace());
        let (mut out, mut beside) = (Vec::new(), String::new());
        super::run(&Line::parse_from(line).arguments, &mut out, &mut |words| beside.push_str(&words))?;
        Ok((String::from_utf8(out).unwrap(), beside))
    }

    #[test]
    fn every_way_writes_as_many_tokens_and_says_what_it_is() {
        let blocks = fixtures::block_run();
        for (words, length, sweeps) in [
            ("--tokens 10 --way tokens", 12, "10 sweeps"),
            ("--tokens 10 --way chunks --chunk 4", 12, "3 sweeps"),
            ("--tokens 5 --way sweep", 7, "1 sweep "),
        ] {
            let (text, beside) = said(&blocks, &format!("--prompt ab {words}")).unwrap();
            assert!(text.starts_with("ab") && beside.contains(sweeps), "{words}: {text}, {beside}");
            assert_eq!(text.len(), length);
        }
        let (text, _) = said(&fixtures::run(), "--prompt ab --tokens 10 --drafts 2").unwrap();
        assert_eq!(text.len(), 12);
        assert_eq!(text, said(&fixtures::run(), "--prompt ab --tokens 10 --drafts 0").unwrap().0);
    }

    #[test]
    fn a_prompt_is_scored_whole_and_in_windows() {
        for run in [fixtures::run(), fixtures::block_run()] {
            for (prompt, tokens) in [("abc", 2), ("abcdefghijkabcdefghijk", 21)] {
                let (score, _) = said(&run, &format!("--score --prompt {prompt}")).unwrap();
                assert!(score.contains(&format!("over {tokens} tokens")), "{score}");
                let nats: f64 = score.split_whitespace().nth(1).unwrap().parse().unwrap();
                // An untrained GPT-2 knows nothing of its 11 characters; untrained blocks believe their noise.
                assert!(
                    if run.blocks.is_none() { (nats - 11f64.ln()).abs() < 0.1 } else { nats > 1.0 },
                    "{score}"
                );
            }
            assert!(said(&run, "--score --prompt a").is_err());
        }
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let error = |run: RunSpec, words: &str| said(&run, words).unwrap_err().to_string();
        assert!(error(fixtures::run(), "--way sweep").contains("--way sweep is of block mode"));
        assert!(error(fixtures::block_run(), "--way sweep --tokens 50").contains("at most 5"));
        assert!(error(fixtures::block_run(), "--way chunks --chunk 6").contains("at most 5"));
        assert!(error(fixtures::run(), "--top-p 1.5").contains("between 0 and 1"));
        assert!(error(fixtures::run(), "--temperature=-1").contains("--temperature is -1"));
        assert!(error(fixtures::run(), "--prompt xyz").contains("'x'"));
        assert!(error(fixtures::block_run(), "--prompt=").contains("the prompt is empty"));
    }
}
