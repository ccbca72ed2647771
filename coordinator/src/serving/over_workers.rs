//! Texts that are written by the workers who hold the model: each step is one traversal of their stages.

use std::{sync::Arc, time::Duration};

use engine::{
    generate::{Feed, Reading, Request, Sampling, Step, TextId, Texts, Token},
    gpt2::StageError,
};
use protocol::{
    limits,
    message::{ReadRows, ReadToken, TextRows},
    spec::ModelSpec,
    tensor::{CodecError, encode_tokens},
};

use super::traversals::{Outcome, Rows, Traversals};

/// Time for which a step waits at most: then whoever wants no text any more can be looked for.
const WAIT: Duration = Duration::from_millis(250);
/// Rows of one text in one traversal, at most: while a long prompt is read, the others go on.
pub(crate) const ROWS: usize = limits::SCORED_ROWS;

/// Why texts cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum OverWorkersError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error("the tokens could not be sent: {0}")]
    Codec(#[from] CodecError),
}

/// Several texts, and the traversal that is under way for them.
pub(super) struct OverWorkers {
    texts: Texts,
    traversals: Arc<Traversals>,
    /// Tokens that are guessed ahead.
    drafts: usize,
    /// Losses of all caches that the texts know of.
    losses: u64,
    /// Who is fed by the traversal under way, and how many tokens are read for each.
    under_way: Option<(Vec<TextId>, Vec<usize>)>,
    /// Texts that have ended, of which the workers do not know yet: a hop may still need their caches for the traversal
    /// under way.
    ended: Vec<u64>,
}

impl OverWorkers {
    /// No texts yet, of at most so many at a time, with so many tokens guessed ahead.
    pub(super) fn new(model: &ModelSpec, traversals: Arc<Traversals>, at_once: usize, drafts: usize) -> Self {
        let rows = ROWS.min(limits::READ_ROWS / at_once.max(1)).max(1);
        let losses = traversals.losses();
        Self {
            texts: Texts::new(model).in_pieces_of(rows),
            traversals,
            drafts,
            losses,
            under_way: None,
            ended: vec![],
        }
    }

    /// Begins a text.
    pub(super) fn open(&mut self, request: Request) -> Result<TextId, StageError> {
        self.texts.open(Request { drafts: self.drafts, ..request })
    }

    /// Ends a text before it is finished.
    pub(super) fn close(&mut self, text: TextId) {
        self.texts.close(text);
        self.ended.push(text.number());
    }

    /// Advances every text by one traversal; nothing while it is under way.
    ///
    /// # Errors
    /// When what was answered does not fit the texts.
    pub(super) fn step(&mut self) -> Result<Vec<Step>, OverWorkersError> {
        let Some((fed, rows)) = self.under_way.take() else { return self.begin() };
        let steps = match self.traversals.outcome(WAIT) {
            None => {
                self.under_way = Some((fed, rows));
                return Ok(vec![]);
            }
            Some(Outcome::Lost) => return Ok(vec![]),
            Some(Outcome::Read(tokens)) => {
                let mut tokens = tokens.into_iter().map(token);
                let answers = rows.iter().map(|rows| tokens.by_ref().take(*rows).collect()).collect();
                self.texts.hear(&fed, answers)?
            }
        };
        self.ended.extend(steps.iter().filter(|step| step.finished).map(|step| step.text.number()));
        Ok(steps)
    }

    /// Tells the workers which texts have ended, where no traversal is under way.
    pub(super) fn tell_ended(&mut self) {
        if self.under_way.is_none() && !self.ended.is_empty() {
            self.traversals.ended(std::mem::take(&mut self.ended));
        }
    }

    fn begin(&mut self) -> Result<Vec<Step>, OverWorkersError> {
        self.tell_ended();
        let losses = self.traversals.losses();
        if losses != self.losses {
            self.losses = losses;
            self.texts.forget_caches();
        }
        let feeds = self.texts.feeds();
        if feeds.is_empty() {
            return Ok(self.texts.hear(&[], vec![])?);
        }
        let fed = feeds.iter().map(|(text, _)| *text).collect();
        let read = feeds.iter().map(|(_, feed)| feed.reading.rows()).collect();
        let tokens: Vec<u32> = feeds.iter().flat_map(|(_, feed)| feed.tokens.iter().copied()).collect();
        let texts =
            feeds.into_iter().map(|(text, feed)| rows(text, feed, self.texts.positions(text))).collect();
        let (meta, payload) = encode_tokens(&tokens, &[tokens.len() as u32])?;
        // Where caches were lost this very moment, the next step begins it anew.
        if self.traversals.begin(self.losses, texts, Rows { meta, payload: payload.into() }) {
            self.under_way = Some((fed, read));
        }
        Ok(vec![])
    }
}

fn rows(text: TextId, feed: Feed, positions: usize) -> TextRows {
    let Feed { keep, tokens, reading: Reading { scored, choices, first, sampling, likeliest } } = feed;
    let Sampling { temperature, top_k, top_p, seed } = sampling;
    TextRows {
        text: text.number(),
        positions: positions as u32,
        keep: keep as u32,
        rows: tokens.len() as u32,
        reading: ReadRows {
            scored,
            choices: choices as u32,
            first,
            temperature,
            top_k: u32::try_from(top_k).unwrap_or(u32::MAX),
            top_p,
            seed,
            likeliest: likeliest as u32,
        },
    }
}

fn token(read: ReadToken) -> Token {
    let ReadToken { id, log_probability, likeliest } = read;
    Token { id, log_probability, likeliest }
}
