//! Texts from composed blocks: by one sweep a token, a sweep for several, or one for the whole continuation.
//!
//! A sweep gives a distribution for every place at once, each after its context. Where the context is still unknown, the
//! likeliest tokens of the block before stand in for it, and for the first block the last known token: so the more tokens a
//! sweep has to write, the fewer traversals and the poorer the text.

use super::{
    BlockError,
    sweep::{Composed, softmax},
};
use crate::{
    generate::{
        Sampling,
        sampling::{choose, likeliest},
    },
    gpt2::{StageError, check_length, check_tokens},
    init::{random, unit},
};

/// What is to be written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Continuation<'a> {
    /// The tokens to continue; at least one.
    pub prompt: &'a [u32],
    /// Tokens to add.
    pub count: usize,
    /// Tokens of one sweep: 1 is token by token.
    pub chunk: usize,
    /// Most tokens that the model reads, as in training: T.
    pub context: usize,
    /// How each token is chosen; the seed is that of the noise too.
    pub sampling: Sampling,
}

impl Composed {
    /// The tokens after the prompt, and how many sweeps they took; each sweep passes once through all blocks. `told` hears
    /// the tokens of every sweep, and ends the text by answering false.
    ///
    /// # Errors
    ///
    /// [`StageError::Length`] for an empty prompt, [`StageError::TooLong`] for a sweep of more tokens than the context,
    /// and [`BlockError::Stage`] for tokens beyond the vocabulary and for logits that are not finite.
    pub async fn write(
        &self,
        wanted: Continuation<'_>,
        mut told: impl FnMut(&[u32]) -> bool,
    ) -> Result<(Vec<u32>, usize), BlockError> {
        let Continuation { prompt, count, chunk, context, sampling } = wanted;
        check_length("a prompt", prompt.len().min(1), 1)?;
        check_tokens("a prompt", prompt, prompt.len(), self.vocabulary() as u32)?;
        let chunk = chunk.clamp(1, count.max(1));
        if chunk > context {
            return Err(StageError::TooLong { tokens: chunk, positions: context }.into());
        }
        let (mut text, mut sweeps) = (prompt.to_vec(), 0);
        while text.len() - prompt.len() < count {
            let written = text.len() - prompt.len();
            let new = chunk.min(count - written);
            let known = &text[text.len().saturating_sub(context + 1 - new)..];
            let rows = self.unknown(known, new, sampling.seed, sweeps as u64).await?;
            sweeps += 1;
            let mut tokens = Vec::with_capacity(new);
            for (place, row) in rows.chunks_exact(self.vocabulary()).enumerate() {
                let draw = unit(random(sampling.seed, (written + place) as u64));
                let token = choose(row, sampling, draw);
                tokens.push(token.ok_or(StageError::NotFinite { what: "a logit" })?);
            }
            text.extend_from_slice(&tokens);
            if !told(&tokens) {
                break;
            }
        }
        Ok((text.split_off(prompt.len()), sweeps))
    }

    /// Logits [new, V] of the tokens after `known`, by one sweep.
    async fn unknown(
        &self,
        known: &[u32],
        new: usize,
        seed: u64,
        sweep: u64,
    ) -> Result<Vec<f32>, BlockError> {
        let vocabulary = self.vocabulary();
        let shape = [1, known.len() + new - 1];
        let mut x = known.to_vec();
        x.resize(shape[1], *known.last().unwrap_or(&0));
        let start = self.start(seed, sweep, self.schedule().one_sweep()[0], shape);
        let guess = |_: &[f32], logits: &[f32], x: &mut [u32]| {
            let before = logits.chunks_exact(vocabulary).skip(known.len() - 1);
            for (token, row) in x[known.len()..].iter_mut().zip(before) {
                *token = likeliest(row, 1).first().copied().unwrap_or(*token);
            }
        };
        let steps = self.steps(&mut x, start, shape, guess).await?;
        let last = steps.last().map_or(&[][..], Vec::as_slice);
        Ok(last[(known.len() - 1) * vocabulary..].to_vec())
    }

    /// ln of the probability of each token of `text` but the first, by one sweep over a context that is known: at most
    /// T + 1 tokens.
    ///
    /// # Errors
    ///
    /// [`BlockError::Stage`] for a text of less than two tokens or more than the positions, or with an unknown token.
    pub async fn score(&self, text: &[u32], seed: u64) -> Result<Vec<f64>, BlockError> {
        check_length("a text to score", text.len().min(2), 2)?;
        let (x, y) = (&text[..text.len() - 1], &text[1..]);
        check_tokens("a text to score", y, y.len(), self.vocabulary() as u32)?;
        let shape = [1, x.len()];
        let start = self.start(seed, 0, self.schedule().one_sweep()[0], shape);
        let steps = self.sweep(x, start, shape).await?;
        let last = steps.last().map_or(&[][..], Vec::as_slice);
        let rows = last.chunks_exact(self.vocabulary()).zip(y);
        Ok(rows
            .map(|(row, &token)| {
                let mut row = row.to_vec();
                softmax(&mut row);
                f64::from(row[token as usize]).max(f64::from(f32::MIN_POSITIVE)).ln()
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use protocol::spec::RunSpec;
    use testkit::fixtures::block_run;

    use super::*;
    use crate::{denoiser::Replica, device::Device};

    fn composed(run: &RunSpec) -> Composed {
        let count = run.blocks.unwrap().count;
        let blocks = (0..count).map(|block| Replica::draw(run, block, 5, &Device::Cpu).unwrap());
        block_on(Composed::new(blocks.collect())).unwrap()
    }

    fn wanted(prompt: &[u32], count: usize, chunk: usize) -> Continuation<'_> {
        let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 3 };
        Continuation { prompt, count, chunk, context: 5, sampling }
    }

    #[test]
    fn a_text_takes_a_sweep_for_each_chunk() {
        let model = composed(&block_run());
        for (chunk, sweeps) in [(1, 12), (2, 6), (5, 3)] {
            let mut heard = Vec::new();
            let told = |tokens: &[u32]| {
                heard.extend_from_slice(tokens);
                true
            };
            let found = block_on(model.write(wanted(&[1, 2], 12, chunk), told)).unwrap();
            assert_eq!((found.0.len(), found.1), (12, sweeps));
            assert_eq!(found.0, heard);
            let again = block_on(model.write(wanted(&[1, 2], 12, chunk), |_| true)).unwrap();
            assert_eq!(found, again, "the same seed gives the same text");
        }
        let whole = block_on(model.write(wanted(&[1, 2], 4, usize::MAX), |_| true)).unwrap();
        assert_eq!((whole.0.len(), whole.1), (4, 1));
        let ended = block_on(model.write(wanted(&[1], 12, 2), |_| false)).unwrap();
        assert_eq!((ended.0.len(), ended.1), (2, 1));
    }

    #[test]
    fn token_by_token_is_the_last_row_of_a_sweep_over_what_is_known() {
        let model = composed(&block_run());
        let greedy = |prompt| Continuation {
            sampling: Sampling { seed: 3, ..Sampling::GREEDY },
            ..wanted(prompt, 1, 1)
        };
        // Longer than the context: only its last tokens are read.
        for prompt in [&[4][..], &[1, 2, 3], &[9, 9, 1, 2, 3, 4, 5]] {
            let window = &prompt[prompt.len().saturating_sub(5)..];
            let shape = [1, window.len()];
            let start = model.start(3, 0, model.schedule().one_sweep()[0], shape);
            let logits = block_on(model.sweep(window, start, shape)).unwrap();
            let last = logits.last().unwrap().chunks_exact(model.vocabulary()).next_back().unwrap();
            let (token, _) = block_on(model.write(greedy(prompt), |_| true)).unwrap();
            assert_eq!(token, likeliest(last, 1));
        }
    }

    #[test]
    fn scores_are_the_cross_entropy_of_one_sweep() {
        let model = composed(&block_run());
        let text = [1, 5, 2, 7, 7, 0];
        let scores = block_on(model.score(&text, 3)).unwrap();
        let start = model.start(3, 0, model.schedule().one_sweep()[0], [1, 5]);
        let logits = block_on(model.sweep(&text[..5], start, [1, 5])).unwrap();
        let exact = crate::denoiser::evaluate::cross_entropy(logits.last().unwrap(), &text[1..], 11);
        assert!((scores.iter().sum::<f64>() / -5.0 - exact).abs() < 1e-5);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let model = composed(&block_run());
        let refused = |wanted| block_on(model.write(wanted, |_| true)).unwrap_err();
        let too_long = StageError::TooLong { tokens: 6, positions: 5 };
        assert_eq!(refused(wanted(&[1], 6, usize::MAX)), too_long.into());
        let unknown = StageError::Token { token: 11, vocabulary: 11 };
        assert_eq!(refused(wanted(&[11], 1, 1)), unknown.into());
        assert!(matches!(refused(wanted(&[], 1, 1)), BlockError::Stage(StageError::Length { .. })));
        assert!(matches!(block_on(model.score(&[1], 3)), Err(BlockError::Stage(StageError::Length { .. }))));
    }
}
