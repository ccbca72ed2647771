//! The tokenizer with one token per character of the corpus.

/// The distinct characters of a text in the order of their code points; a character's id is its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Characters(Vec<char>);

/// Which characters a text has, while it is read.
#[derive(Debug, Clone)]
pub struct CharacterSet {
    /// One mark for each code point: a corpus has far more characters than Unicode.
    seen: Vec<bool>,
}

impl Default for CharacterSet {
    fn default() -> Self {
        Self { seen: vec![false; char::MAX as usize + 1] }
    }
}

impl CharacterSet {
    /// Marks all characters that occur in `text`.
    pub fn add(&mut self, text: &str) {
        for character in text.chars() {
            self.seen[character as usize] = true;
        }
    }

    /// The characters that were marked.
    pub fn characters(&self) -> Characters {
        Characters(('\0'..=char::MAX).filter(|c| self.seen[*c as usize]).collect())
    }
}

impl Characters {
    /// All characters that occur in `text`.
    pub fn of(text: &str) -> Self {
        let mut set = CharacterSet::default();
        set.add(text);
        set.characters()
    }

    /// V.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no character.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The characters in the order of their ids, to be saved; [`Characters::of`] reads it back.
    pub fn as_text(&self) -> String {
        self.0.iter().collect()
    }

    /// The id of a character; None where the text had none.
    pub fn id(&self, character: char) -> Option<u32> {
        self.0.binary_search(&character).ok().map(|id| id as u32)
    }

    /// The character of an id.
    pub fn character(&self, id: u32) -> Option<char> {
        self.0.get(id as usize).copied()
    }
}
