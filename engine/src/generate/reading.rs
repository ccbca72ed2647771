//! What is read from the logits of a traversal.

use super::{
    Sampling, Token,
    sampling::{choose, likeliest, log_sum},
};
use crate::{
    gpt2::StageError,
    init::{random, unit},
};

/// How the logits of one text are read: some rows say how likely tokens were that are known, the others choose the next
/// ones. Whoever has the logits can do it: a few bytes a token come of it, where a row of logits has four for each entry
/// of the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Tokens of the prompt, of which the first rows say how likely they were.
    pub scored: Vec<u32>,
    /// Rows after those, each of which chooses a token.
    pub choices: usize,
    /// The place, among the text's new tokens, of the first one that is chosen: it has a random number of its own.
    pub first: u64,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// How many of the likeliest tokens are told with each.
    pub likeliest: usize,
}

impl Reading {
    /// Rows of logits that it needs.
    pub fn rows(&self) -> usize {
        self.scored.len() + self.choices
    }

    /// Reads logits [rows, V]: one token for each row, of the scored ones the known token.
    ///
    /// # Errors
    ///
    /// [`StageError::NotFinite`] for a logit of NaN or infinity, [`StageError::Length`] for another number of rows,
    /// [`StageError::Token`] for a token to score that is none.
    pub fn read(&self, logits: &[f32], vocabulary: usize) -> Result<Vec<Token>, StageError> {
        let expected = self.rows() * vocabulary;
        if logits.len() != expected {
            return Err(StageError::Length { what: "the logits", found: logits.len(), expected });
        }
        crate::gpt2::check_tokens("tokens to score", &self.scored, self.scored.len(), vocabulary as u32)?;
        let mut rows = logits.chunks_exact(vocabulary.max(1));
        let mut tokens = Vec::with_capacity(self.rows());
        for (id, row) in self.scored.iter().zip(rows.by_ref()) {
            tokens.push(self.token(*id, row)?);
        }
        for (number, row) in (self.first..).zip(rows) {
            let draw = unit(random(self.sampling.seed, number));
            let id = choose(row, self.sampling, draw).ok_or(StageError::NotFinite { what: "a logit" })?;
            tokens.push(self.token(id, row)?);
        }
        Ok(tokens)
    }

    /// A token and how likely it was.
    fn token(&self, id: u32, logits: &[f32]) -> Result<Token, StageError> {
        let sum = log_sum(logits);
        if !sum.is_finite() {
            return Err(StageError::NotFinite { what: "a logit" });
        }
        let log_probability = |id: u32| f64::from(logits[id as usize]) - sum;
        let likeliest = match self.likeliest {
            0 => vec![],
            count => likeliest(logits, count).into_iter().map(|id| (id, log_probability(id))).collect(),
        };
        Ok(Token { id, log_probability: log_probability(id), likeliest })
    }
}
