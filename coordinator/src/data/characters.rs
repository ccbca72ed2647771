//! The tokenizer with one token per character of the corpus.

/// The distinct characters of a text in the order of their code points; a character's id is its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Characters(Vec<char>);

impl Characters {
    /// All characters that occur in `text`.
    pub fn of(text: &str) -> Self {
        // One mark for each code point: a corpus has far more characters than Unicode.
        let mut seen = vec![false; char::MAX as usize + 1];
        for character in text.chars() {
            seen[character as usize] = true;
        }
        Self(('\0'..=char::MAX).filter(|c| seen[*c as usize]).collect())
    }

    /// V.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The characters in the order of their ids, to be saved; [`Characters::of`] reads it back.
    pub fn as_text(&self) -> String {
        self.0.iter().collect()
    }

    pub fn id(&self, character: char) -> Option<u32> {
        self.0.binary_search(&character).ok().map(|id| id as u32)
    }

    pub fn character(&self, id: u32) -> Option<char> {
        self.0.get(id as usize).copied()
    }
}
