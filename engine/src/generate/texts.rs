//! Several texts that are written at a time, without the model.

use std::collections::BTreeMap;

use protocol::spec::ModelSpec;

use super::{Feed, Progress, Request, Text, Token};
use crate::gpt2::StageError;

/// Names a text among others; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(u64);

impl TextId {
    /// The number behind the name: 0 for the first text that was opened, and so on.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What one text got of a traversal.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Whose.
    pub text: TextId,
    /// Scores of its prompt, and new tokens.
    pub progress: Progress,
    /// Whether it has all its tokens; it is closed then.
    pub finished: bool,
}

/// Texts that advance together, one traversal of the model after the other: [`Texts::feeds`] says what the stages have
/// to compute, wherever they are, and [`Texts::take`] hears their logits, or
/// [`Texts::hear`] what was read from them.
#[derive(Debug, Clone)]
pub struct Texts {
    model: ModelSpec,
    texts: BTreeMap<TextId, Text>,
    opened: u64,
    /// Most tokens of one text in one traversal.
    rows: usize,
}

impl Texts {
    /// No texts yet, of this model.
    pub fn new(model: &ModelSpec) -> Texts {
        Texts { model: model.clone(), texts: BTreeMap::new(), opened: 0, rows: usize::MAX }
    }

    /// Sends at most `rows` tokens of each text through the model at a time: a long prompt then takes several
    /// traversals, in which the others go on. It changes nothing that is written.
    #[must_use]
    pub fn in_pieces_of(mut self, rows: usize) -> Texts {
        self.rows = rows.max(1);
        self
    }

    /// What computes them.
    pub fn model(&self) -> &ModelSpec {
        &self.model
    }

    /// Begins a text.
    ///
    /// # Errors
    ///
    /// As for [`Text::new`].
    pub fn open(&mut self, request: Request) -> Result<TextId, StageError> {
        let text = Text::new(&self.model, request)?;
        let id = TextId(self.opened);
        self.opened += 1;
        self.texts.insert(id, text);
        Ok(id)
    }

    /// Ends a text before it is finished; one that is closed already stays so.
    pub fn close(&mut self, text: TextId) {
        self.texts.remove(&text);
    }

    /// Texts that are not finished.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Tokens that a text's caches must have room for; 0 for one that is closed.
    pub fn positions(&self, text: TextId) -> usize {
        self.texts.get(&text).map_or(0, Text::positions)
    }

    /// All caches are lost, as with a device that left: the next traversals build them again.
    pub fn forget_caches(&mut self) {
        self.texts.values_mut().for_each(Text::forget_cache);
    }

    /// What the next traversal has to compute, in the order of [`Texts::open`]: nothing for texts that are finished.
    /// Until [`Texts::take`] has heard the answer, it is the same.
    pub fn feeds(&mut self) -> Vec<(TextId, Feed)> {
        let rows = self.rows;
        self.texts.iter_mut().filter_map(|(&id, text)| Some((id, text.feed(rows)?))).collect()
    }

    /// Hears the logits of a traversal: for each of `fed`, [[`super::Reading::rows`], V]. Texts that were closed meanwhile
    /// are passed over; those that are finished now are closed. In the order of [`Texts::open`].
    ///
    /// # Errors
    ///
    /// As for [`Text::take`]: texts may then be ahead of what was told, and cannot go on.
    pub fn take(&mut self, fed: &[TextId], answers: Vec<Vec<f32>>) -> Result<Vec<Step>, StageError> {
        let vocabulary = self.model.vocabulary as usize;
        self.advance(fed, answers, |text, logits: Vec<f32>| text.take(&logits, vocabulary))
    }

    /// As [`Texts::take`], of what was read from the logits elsewhere: for each of `fed`, a token for each row.
    ///
    /// # Errors
    ///
    /// As for [`Text::hear`].
    pub fn hear(&mut self, fed: &[TextId], answers: Vec<Vec<Token>>) -> Result<Vec<Step>, StageError> {
        self.advance(fed, answers, Text::hear)
    }

    fn advance<A>(
        &mut self,
        fed: &[TextId],
        answers: Vec<A>,
        take: impl Fn(&mut Text, A) -> Result<Progress, StageError>,
    ) -> Result<Vec<Step>, StageError> {
        let mut steps: Vec<Step> = Vec::with_capacity(self.texts.len());
        for (&id, answer) in fed.iter().zip(answers) {
            let Some(text) = self.texts.get_mut(&id) else { continue };
            let progress = take(text, answer)?;
            steps.push(Step { text: id, progress, finished: text.is_finished() });
        }
        // Of those that asked for nothing, too, it is told that they are finished.
        let asked_nothing = self.texts.iter().filter(|(id, text)| text.is_finished() && !fed.contains(id));
        steps.extend(asked_nothing.map(|(&text, _)| Step {
            text,
            progress: Progress::default(),
            finished: true,
        }));
        steps.sort_by_key(|step| step.text);
        for step in steps.iter().filter(|step| step.finished) {
            self.texts.remove(&step.text);
        }
        Ok(steps)
    }
}
