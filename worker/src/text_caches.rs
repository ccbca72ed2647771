//! Texts that the workers of a plan write: the keys and values that this stage keeps for them, and what the hop with the
//! head reads from its logits.

use std::collections::BTreeMap;

use engine::{
    generate::{Reading, Sampling, Token},
    gpt2::{Cache, Decode, HopInput, Stage},
};
use protocol::{
    message::{self, ReadRows, ReadToken, TextRows},
    spec::{ModelSpec, Part},
    tensor::{TensorMeta, decode_floats, decode_tokens},
};

use crate::error::TaskError;

/// What comes of new tokens in a hop.
#[derive(Default)]
pub(crate) struct Out {
    /// Hidden states [R, d]; none of the hop with the head.
    pub(crate) hidden: Vec<f32>,
    /// Of the hop with the head: a token for each row of logits that was to be read.
    pub(crate) tokens: Vec<ReadToken>,
}

/// The caches of a stage, by hop and text.
pub(crate) struct TextCaches {
    caches: BTreeMap<(u32, u64), Cache>,
    /// Bytes that the caches of all layers of the model may take.
    allowed: u64,
}

impl TextCaches {
    /// None yet.
    pub(crate) fn new(allowed: u64) -> Self {
        Self { caches: BTreeMap::new(), allowed }
    }

    /// Texts have ended.
    pub(crate) fn close(&mut self, texts: &[u64]) {
        self.caches.retain(|(_, text), _| !texts.contains(text));
    }

    /// All texts have ended.
    pub(crate) fn clear(&mut self) {
        self.caches.clear();
    }

    /// New tokens through a hop, whose part of the model is `part`.
    ///
    /// # Errors
    /// When the rows are not what the message says, a cache is not here or there is no room for one, and as for
    /// [`Stage::decode`].
    pub(crate) async fn decode(
        &mut self,
        stage: &Stage,
        model: &ModelSpec,
        part: &Part,
        decode: &message::Decode,
        payload: &[u8],
    ) -> Result<Out, TaskError> {
        let message::Decode { of, texts, rows } = decode;
        let count: u64 = texts.iter().map(|text| u64::from(text.rows)).sum();
        let rows = Rows::read(model, part, rows, payload, count)?;
        let mut caches = Vec::with_capacity(texts.len());
        for text in texts {
            caches.push(self.take(stage, model, of.hop, text)?);
        }
        let mut from = 0;
        let requests = caches.iter_mut().zip(texts).map(|(cache, text)| {
            let range = from..from + text.rows as usize;
            from = range.end;
            cache.truncate(text.keep as usize);
            let logits = if part.head { reading(&text.reading).rows() } else { 0 };
            Decode { cache, input: rows.of(range, model.width as usize), logits }
        });
        let requests = requests.collect();
        let out = stage.decode(of.hop, requests).await?;
        for (cache, text) in caches.into_iter().zip(texts) {
            self.caches.insert((of.hop, text.text), cache);
        }
        if !part.head {
            return Ok(Out { hidden: out.concat(), ..Out::default() });
        }
        let mut tokens = Vec::new();
        for (text, logits) in texts.iter().zip(out) {
            tokens.extend(
                reading(&text.reading).read(&logits, model.vocabulary as usize)?.into_iter().map(read),
            );
        }
        Ok(Out { tokens, ..Out::default() })
    }

    /// A text's cache, to be put back. It is opened when the text is met first.
    fn take(
        &mut self,
        stage: &Stage,
        model: &ModelSpec,
        hop: u32,
        text: &TextRows,
    ) -> Result<Cache, TaskError> {
        let fits =
            |cache: &Cache| cache.positions() == text.positions as usize && cache.len() >= text.keep as usize;
        match self.caches.remove(&(hop, text.text)).filter(fits) {
            Some(cache) => return Ok(cache),
            None if text.keep == 0 => {}
            None => return Err(TaskError::NoCache { text: text.text }),
        }
        // What the run allows is for all layers, and a text has one cache in each hop.
        let others = self.caches.iter().filter(|((of, _), _)| *of == hop);
        let positions =
            others.map(|(_, cache)| cache.positions() as u64).sum::<u64>() + u64::from(text.positions);
        let needed = Cache::bytes(model, &model.whole(), 1).saturating_mul(positions);
        // One text more: a sample of the coordinator's own waits for no room.
        let sample = Cache::bytes(model, &model.whole(), model.positions as usize);
        let allowed = self.allowed.saturating_add(sample);
        if needed > allowed {
            return Err(TaskError::NoRoom { needed, allowed });
        }
        Ok(stage.open_cache(hop, text.positions as usize)?)
    }
}

fn reading(read: &ReadRows) -> Reading {
    let ReadRows { scored, choices, first, temperature, top_k, top_p, seed, likeliest } = read;
    Reading {
        scored: scored.clone(),
        choices: *choices as usize,
        first: *first,
        sampling: Sampling { temperature: *temperature, top_k: *top_k as usize, top_p: *top_p, seed: *seed },
        likeliest: *likeliest as usize,
    }
}

fn read(token: Token) -> ReadToken {
    let Token { id, log_probability, likeliest } = token;
    ReadToken { id, log_probability, likeliest }
}

/// What enters a hop.
enum Rows {
    Tokens(Vec<u32>),
    Hidden(Vec<f32>),
}

impl Rows {
    fn read(
        model: &ModelSpec,
        part: &Part,
        rows: &TensorMeta,
        payload: &[u8],
        count: u64,
    ) -> Result<Self, TaskError> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let wanted = if part.embedding { vec![count] } else { vec![count, model.width] };
        if rows.shape != wanted {
            return Err(TaskError::Shape { found: rows.shape.clone(), wanted });
        }
        Ok(match part.embedding {
            true => Rows::Tokens(decode_tokens(rows, payload)?),
            false => Rows::Hidden(decode_floats(rows, payload)?),
        })
    }

    fn of(&self, rows: std::ops::Range<usize>, width: usize) -> HopInput<'_> {
        match self {
            Rows::Tokens(tokens) => HopInput::Tokens(&tokens[rows]),
            Rows::Hidden(hidden) => HopInput::Hidden(hidden[rows.start * width..rows.end * width].to_vec()),
        }
    }
}
