//! One text that is being written: what the model has to compute next, and what follows from the logits.

use protocol::spec::ModelSpec;

use super::{Reading, Sampling, drafts};
use crate::gpt2::{StageError, check_tokens};

/// What is to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The tokens to continue; at least one.
    pub prompt: Vec<u32>,
    /// Tokens to add.
    pub count: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// How many of the likeliest tokens to tell with each, beside the one that was chosen.
    pub likeliest: usize,
    /// Most tokens to guess ahead, by looking up what followed the same words before; 0 for none. The text stays the
    /// same, and takes fewer traversals of the model where it repeats itself.
    pub drafts: usize,
    /// Also tell how likely the prompt's own tokens were; it must then fit the model's positions.
    pub score_prompt: bool,
}

impl Request {
    /// `count` tokens after `prompt`, and nothing more.
    pub fn new(prompt: Vec<u32>, count: usize, sampling: Sampling) -> Request {
        Request { prompt, count, sampling, likeliest: 0, drafts: 0, score_prompt: false }
    }
}

/// A token of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// ln of its probability after the tokens before it, at temperature 1 among all tokens.
    pub log_probability: f64,
    /// The likeliest tokens in its place and ln of their probabilities, likeliest first.
    pub likeliest: Vec<(u32, f64)>,
}

/// What the model has to compute for a text next.
#[derive(Debug, Clone, PartialEq)]
pub struct Feed {
    /// The caches of all stages keep this many tokens and forget the others.
    pub keep: usize,
    /// The tokens that come after those; at least one.
    pub tokens: Vec<u32>,
    /// What is read from the logits of the last of them.
    pub reading: Reading,
}

/// What came of a traversal.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Tokens of the prompt but the first, if they were to be scored.
    pub prompt: Vec<Token>,
    /// New tokens: none within a long prompt, several after drafts that were right.
    pub written: Vec<Token>,
}

/// A text, without the model: [`Text::feed`] says what the stages have to compute, wherever they are, and
/// [`Text::take`] hears their logits, or [`Text::hear`] what was read from them.
///
/// When the text outgrows the model's positions, the window slides: only the last tokens are seen, and each is at
/// another position than before. What is cached is then of no use, so that from there on every token costs a pass
/// over the whole window, as without a cache.
#[derive(Debug, Clone)]
pub struct Text {
    request: Request,
    positions: usize,
    /// The prompt and what was written.
    tokens: Vec<u32>,
    /// Where the window begins in `tokens`.
    window: usize,
    /// Tokens from there on that the caches have.
    cached: usize,
    /// Tokens of the prompt that need no score, or have it.
    scored: usize,
    /// Guesses in the feed that is under way.
    drafted: Vec<u32>,
    /// Rows in it.
    rows: usize,
    /// What is read from its logits.
    reading: Reading,
}

impl Text {
    /// A text that is yet to be begun.
    ///
    /// # Errors
    ///
    /// [`StageError::Length`] for an empty prompt, [`StageError::Token`] for one with an unknown token,
    /// [`StageError::TooLong`] for one that is to be scored and does not fit the positions.
    pub fn new(model: &ModelSpec, request: Request) -> Result<Text, StageError> {
        let (tokens, positions) = (request.prompt.len(), model.positions as usize);
        if tokens == 0 {
            return Err(StageError::Length { what: "a prompt", found: 0, expected: 1 });
        }
        check_tokens("a prompt", &request.prompt, tokens, model.vocabulary)?;
        if request.score_prompt && tokens > positions {
            return Err(StageError::TooLong { tokens, positions });
        }
        let scored = if request.score_prompt { 1 } else { tokens };
        let tokens = request.prompt.clone();
        let Request { sampling, likeliest, .. } = request;
        let reading = Reading { scored: vec![], choices: 0, first: 0, sampling, likeliest };
        Ok(Text {
            request,
            positions,
            tokens,
            window: 0,
            cached: 0,
            scored,
            drafted: vec![],
            rows: 0,
            reading,
        })
    }

    /// Tokens that the caches must have room for.
    pub fn positions(&self) -> usize {
        // The last token is written and never read.
        let most = self.request.prompt.len() + self.request.count.max(1) - 1;
        most.min(self.positions)
    }

    /// New tokens so far.
    pub fn written(&self) -> usize {
        self.tokens.len() - self.request.prompt.len()
    }

    /// Whether all tokens have been written, and the prompt scored if it is to be.
    pub fn is_finished(&self) -> bool {
        self.written() >= self.request.count && self.scored == self.request.prompt.len()
    }

    /// The caches are lost, as with a device that left: the next feeds build them again.
    pub fn forget_cache(&mut self) {
        self.cached = 0;
    }

    /// The next tokens to compute, at most `most` of them; None when the text is finished. Until [`Text::take`] has
    /// heard the answer, it is the same.
    pub fn feed(&mut self, most: usize) -> Option<Feed> {
        if self.is_finished() {
            return None;
        }
        if self.tokens.len() - self.window > self.positions {
            self.window = self.tokens.len() - self.positions;
            self.cached = 0;
        }
        let most = most.max(1);
        let missing = &self.tokens[self.window + self.cached..];
        let rows = missing.len().min(most);
        let mut tokens = missing[..rows].to_vec();
        self.drafted.clear();
        let mut logits = 0;
        if rows == missing.len() {
            logits = 1;
            // A right draft brings a token beyond itself; neither may come after the last, nor beyond the positions.
            let room = (self.request.count.saturating_sub(self.written() + 1))
                .min(self.positions - self.cached - rows)
                .min(most - rows);
            self.drafted = drafts::look_up(&self.tokens, self.request.drafts.min(room));
        }
        let unscored = self.request.prompt.len() - self.scored;
        if unscored > 0 {
            // The row of a token gives the score of the next one.
            logits = (self.window + self.cached + rows + 1).saturating_sub(self.scored).min(rows);
        }
        let scores = unscored.min(logits);
        self.reading.scored = self.tokens[self.scored..self.scored + scores].to_vec();
        self.reading.choices = logits - scores + self.drafted.len();
        self.reading.first = self.written() as u64;
        tokens.extend_from_slice(&self.drafted);
        self.rows = rows;
        Some(Feed { keep: self.cached, tokens, reading: self.reading.clone() })
    }

    /// Hears the logits [[`Reading::rows`], V] of the last feed.
    ///
    /// # Errors
    ///
    /// As for [`Reading::read`].
    pub fn take(&mut self, logits: &[f32], vocabulary: usize) -> Result<Progress, StageError> {
        let tokens = self.reading.read(logits, vocabulary)?;
        self.hear(tokens)
    }

    /// Hears what was read from the logits of the last feed: a token for each row.
    ///
    /// # Errors
    ///
    /// [`StageError::Length`] for another number of tokens.
    pub fn hear(&mut self, mut tokens: Vec<Token>) -> Result<Progress, StageError> {
        let (found, expected) = (tokens.len(), self.reading.rows());
        if found != expected {
            return Err(StageError::Length { what: "what was read from the logits", found, expected });
        }
        let chosen = tokens.split_off(self.reading.scored.len());
        let mut progress = Progress { prompt: tokens, written: vec![] };
        self.scored += progress.prompt.len();
        self.cached += self.rows;
        for (token, draft) in chosen.into_iter().zip(self.drafted.iter().map(Some).chain([None])) {
            if self.written() + progress.written.len() >= self.request.count {
                break;
            }
            let right = draft == Some(&token.id);
            progress.written.push(token);
            if !right {
                break;
            }
            self.cached += 1;
        }
        self.tokens.extend(progress.written.iter().map(|token| token.id));
        Ok(progress)
    }
}
