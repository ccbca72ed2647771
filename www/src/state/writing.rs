//! One text while the model writes it: what has come, and what is told of it.

use serde::Deserialize;

use super::sse::{Lines, SentEvent};

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    /// Nothing has been asked for yet.
    #[default]
    Idle,
    /// Asked for, and nothing heard yet.
    Asked,
    /// So many texts are before it.
    Waiting(u32),
    /// It is being written.
    Writing,
    /// It has all its tokens.
    Done,
    /// The person stopped it.
    Stopped,
    /// It ended otherwise, for a reason in words.
    Failed(String),
}

impl Stage {
    /// Whether something may still come.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self, Stage::Asked | Stage::Waiting(_) | Stage::Writing)
    }
}

/// A text with its stage.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    lines: Lines,
    /// How far it is.
    pub(crate) stage: Stage,
    /// What the model has added to the prompt.
    pub(crate) text: String,
}

/// As much of an answer as the page reads.
#[derive(Deserialize)]
struct Piece {
    #[serde(default)]
    choices: Vec<Choice>,
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Choice {
    text: String,
}

#[derive(Deserialize)]
struct Fault {
    message: String,
}

impl Writing {
    /// A text that has just been asked for.
    pub(crate) fn asked() -> Self {
        Self { stage: Stage::Asked, ..Self::default() }
    }

    /// Takes in what has come.
    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        for event in self.lines.add(bytes) {
            if !self.stage.is_under_way() {
                return;
            }
            match event {
                SentEvent::Comment(comment) => {
                    let place = comment.strip_prefix("place ").and_then(|place| place.parse().ok());
                    match place {
                        Some(0) => self.stage = Stage::Writing,
                        Some(place) => self.stage = Stage::Waiting(place),
                        None => {}
                    }
                }
                SentEvent::Data(data) if data == "[DONE]" => self.stage = Stage::Done,
                SentEvent::Data(data) => self.take(&data),
            }
        }
    }

    fn take(&mut self, data: &str) {
        let Ok(piece) = serde_json::from_str::<Piece>(data) else { return };
        if let Some(fault) = piece.error {
            self.stage = Stage::Failed(fault.message);
            return;
        }
        self.stage = Stage::Writing;
        for choice in piece.choices {
            self.text.push_str(&choice.text);
        }
    }

    /// The answer has ended, or broke.
    pub(crate) fn ended(&mut self, words: &str) {
        if self.stage.is_under_way() {
            self.stage = Stage::Failed(words.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_waits_grows_and_ends() {
        let mut writing = Writing::asked();
        writing.hear(b": place 2\n\n");
        assert_eq!(writing.stage, Stage::Waiting(2));
        writing.hear(b": place 0\n\n");
        assert_eq!(writing.stage, Stage::Writing);
        writing.hear(b"data: {\"choices\":[{\"text\":\"Once\",\"index\":0}]}\n\ndata: {\"choices\":[{\"te");
        writing.hear(b"xt\":\" more\"}]}\n\ndata: [DONE]\n\n");
        assert_eq!((writing.text.as_str(), &writing.stage), ("Once more", &Stage::Done));
        writing.ended("broken");
        assert_eq!(writing.stage, Stage::Done, "it was whole");
    }

    #[test]
    fn a_fault_in_the_middle_and_a_broken_connection_keep_the_text() {
        let mut writing = Writing::asked();
        writing.hear(b"data: {\"choices\":[{\"text\":\"Once\"}]}\n\n");
        writing.hear(b"data: {\"error\":{\"message\":\"switched off\"}}\n\n");
        assert_eq!((writing.text.as_str(), &writing.stage), ("Once", &Stage::Failed("switched off".into())));
        let mut writing = Writing::asked();
        writing.ended("broken");
        assert_eq!(writing.stage, Stage::Failed("broken".into()));
    }
}
