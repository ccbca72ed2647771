//! Several texts from a whole model in one process.

use std::collections::BTreeMap;

use protocol::spec::{Hop, ModelSpec};

use super::{Request, Step, Text, TextId, Texts};
use crate::{
    device::Device,
    gpt2::{Cache, Decode, HopInput, Stage, StageError},
    parameters::ParameterSet,
};

/// The only hop of a whole model.
const WHOLE: u32 = 0;

/// A whole model that writes several texts at a time.
///
/// Every [`Decoder::step`] advances all of them in one traversal, which reads the weights once. On the processor what
/// a text says depends on its request alone, not on the others.
pub struct Decoder {
    stage: Stage,
    texts: Texts,
    caches: BTreeMap<TextId, Cache>,
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
        Ok(Decoder { stage, texts: Texts::new(model), caches: BTreeMap::new(), traversals: 0 })
    }

    /// As [`Texts::in_pieces_of`].
    #[must_use]
    pub fn in_pieces_of(mut self, rows: usize) -> Decoder {
        self.texts = self.texts.in_pieces_of(rows);
        self
    }

    /// What it computes.
    pub fn model(&self) -> &ModelSpec {
        self.texts.model()
    }

    /// Bytes that the request's cache will take while it is open.
    ///
    /// # Errors
    ///
    /// As for [`Decoder::open`].
    pub fn bytes(&self, request: &Request) -> Result<u64, StageError> {
        let model = self.model();
        let text = Text::new(model, request.clone())?;
        Ok(Cache::bytes(model, &model.whole(), text.positions()))
    }

    /// Begins a text. Nothing is computed before the next step.
    ///
    /// # Errors
    ///
    /// As for [`Text::new`].
    pub fn open(&mut self, request: Request) -> Result<TextId, StageError> {
        let id = self.texts.open(request)?;
        match self.stage.open_cache(WHOLE, self.texts.positions(id)) {
            Ok(cache) => {
                self.caches.insert(id, cache);
                Ok(id)
            }
            Err(error) => {
                self.texts.close(id);
                Err(error)
            }
        }
    }

    /// Ends a text before it is finished, and frees its cache. One that is closed already stays so.
    pub fn close(&mut self, text: TextId) {
        self.texts.close(text);
        self.caches.remove(&text);
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
        let feeds = self.texts.feeds();
        let fed: Vec<TextId> = feeds.iter().map(|(id, _)| *id).collect();
        let caches = self.caches.iter_mut().filter(|(id, _)| fed.contains(id));
        let requests: Vec<_> = caches
            .zip(&feeds)
            .map(|((_, cache), (_, feed))| {
                cache.truncate(feed.keep);
                Decode { cache, input: HopInput::Tokens(&feed.tokens), logits: feed.reading.rows() }
            })
            .collect();
        let mut answers = vec![];
        if !requests.is_empty() {
            answers = self.stage.decode(WHOLE, requests).await?;
            self.traversals += 1;
        }
        let steps = self.texts.take(&fed, answers)?;
        for step in steps.iter().filter(|step| step.finished) {
            self.caches.remove(&step.text);
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
