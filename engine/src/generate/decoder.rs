//! Several texts from a whole model in one process.

use std::collections::BTreeMap;

use protocol::spec::{Hop, ModelSpec};

use super::{Progress, Request, Text};
use crate::{
    device::Device,
    gpt2::{Cache, Decode, HopInput, Stage, StageError},
    parameters::ParameterSet,
};

/// The only hop of a whole model.
const WHOLE: u32 = 0;

/// Names a text of a [`Decoder`]; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(u64);

/// What one text got in a [`Decoder::step`].
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Whose.
    pub text: TextId,
    /// Scores of its prompt, and new tokens.
    pub progress: Progress,
    /// Whether it has all its tokens; it is closed then.
    pub finished: bool,
}

/// A whole model that writes several texts at a time.
///
/// Every [`Decoder::step`] advances all of them in one traversal, which reads the weights once. On the processor what
/// a text says depends on its request alone, not on the others.
pub struct Decoder {
    model: ModelSpec,
    stage: Stage,
    texts: BTreeMap<TextId, (Text, Cache)>,
    opened: u64,
    /// Most tokens of one text in one traversal.
    rows: usize,
    traversals: u64,
}

impl Decoder {
    /// A writer of texts with these parameters.
    ///
    /// # Errors
    ///
    /// [`StageError`] when `parameters` are not those of the whole model on `device`.
    pub fn new(model: &ModelSpec, parameters: ParameterSet, device: &Device) -> Result<Decoder, StageError> {
        let hops = [Hop { index: WHOLE, part: model.whole() }];
        let stage = Stage::for_inference(model, &hops, device, parameters)?;
        let (model, texts) = (model.clone(), BTreeMap::new());
        Ok(Decoder { model, stage, texts, opened: 0, rows: usize::MAX, traversals: 0 })
    }

    /// Sends at most `rows` tokens of each text through the model at a time: a long prompt then takes several steps,
    /// in which the others go on. It changes nothing that is written.
    #[must_use]
    pub fn in_pieces_of(mut self, rows: usize) -> Decoder {
        self.rows = rows.max(1);
        self
    }

    /// What it computes.
    pub fn model(&self) -> &ModelSpec {
        &self.model
    }

    /// Bytes that the request's cache will take while it is open.
    ///
    /// # Errors
    ///
    /// As for [`Decoder::open`].
    pub fn bytes(&self, request: &Request) -> Result<u64, StageError> {
        let text = Text::new(&self.model, request.clone())?;
        Ok(Cache::bytes(&self.model, &self.model.whole(), text.positions()))
    }

    /// Begins a text. Nothing is computed before the next step.
    ///
    /// # Errors
    ///
    /// As for [`Text::new`].
    pub fn open(&mut self, request: Request) -> Result<TextId, StageError> {
        let text = Text::new(&self.model, request)?;
        let cache = self.stage.open_cache(WHOLE, text.positions())?;
        let id = TextId(self.opened);
        self.opened += 1;
        self.texts.insert(id, (text, cache));
        Ok(id)
    }

    /// Ends a text before it is finished, and frees its cache. One that is closed already stays so.
    pub fn close(&mut self, text: TextId) {
        self.texts.remove(&text);
    }

    /// Texts that are not finished.
    pub fn open_texts(&self) -> usize {
        self.texts.len()
    }

    /// Passes through the model so far.
    pub fn traversals(&self) -> u64 {
        self.traversals
    }

    /// Advances every text by one traversal, and closes those that are finished. In the order of [`Decoder::open`].
    ///
    /// # Errors
    ///
    /// [`StageError::NotFinite`] for logits of NaN or infinity, as of a model that has come to harm, and
    /// [`StageError::Device`]; texts may be ahead of what was told then, and cannot go on.
    pub async fn step(&mut self) -> Result<Vec<Step>, StageError> {
        let (mut fed, mut feeds) = (Vec::new(), Vec::new());
        let mut steps = Vec::new();
        for (&id, (text, _)) in &mut self.texts {
            match text.feed(self.rows) {
                Some(feed) => {
                    fed.push(id);
                    feeds.push(feed);
                }
                None => steps.push(Step { text: id, progress: Progress::default(), finished: true }),
            }
        }
        if !fed.is_empty() {
            let caches = self.texts.iter_mut().filter(|(id, _)| fed.contains(id));
            let requests = caches
                .zip(&feeds)
                .map(|((_, (_, cache)), feed)| {
                    cache.truncate(feed.keep);
                    Decode { cache, input: HopInput::Tokens(&feed.tokens), logits: feed.logits }
                })
                .collect();
            let answers = self.stage.decode(WHOLE, requests).await?;
            self.traversals += 1;
            for (id, logits) in fed.into_iter().zip(answers) {
                let Some((text, _)) = self.texts.get_mut(&id) else { continue };
                let progress = text.take(&logits, self.model.vocabulary as usize)?;
                steps.push(Step { text: id, progress, finished: text.is_finished() });
            }
        }
        steps.sort_by_key(|step| step.text);
        for step in steps.iter().filter(|step| step.finished) {
            self.texts.remove(&step.text);
        }
        Ok(steps)
    }

    /// One text from beginning to end, beside those that are open, whose steps are lost. `told` hears every token as
    /// it comes, and ends the text by answering false.
    ///
    /// # Errors
    ///
    /// As for [`Decoder::open`] and [`Decoder::step`].
    pub async fn write(
        &mut self,
        request: Request,
        mut told: impl FnMut(&super::Token) -> bool,
    ) -> Result<Vec<u32>, StageError> {
        let id = self.open(request)?;
        let mut tokens = Vec::new();
        loop {
            for step in self.step().await?.into_iter().filter(|step| step.text == id) {
                for token in &step.progress.written {
                    tokens.push(token.id);
                    if !told(token) {
                        self.close(id);
                        return Ok(tokens);
                    }
                }
                if step.finished {
                    return Ok(tokens);
                }
            }
        }
    }
}
