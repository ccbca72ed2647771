//! Text to token ids and back.

use std::path::Path;

use blake3::Hash;
use serde::{Deserialize, Serialize};

use super::{
    characters::Characters,
    corpus::{Corpus, CorpusError},
    gpt2::{Gpt2, Gpt2Error},
};

/// `data.tokenizer` of `run.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenizerKind {
    /// A token is a byte; V = 256.
    Bytes,
    /// A token is a character; V = distinct characters of the corpus.
    Characters,
    /// GPT-2's byte-level BPE; V = 50,257.
    Gpt2,
}

impl TokenizerKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Bytes, Self::Characters, Self::Gpt2];

    /// The name in `run.toml`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Characters => "characters",
            Self::Gpt2 => "gpt2",
        }
    }

    /// V, as far as it is known without the corpus: an English text has about a hundred different characters.
    pub fn usual_vocabulary(self) -> u32 {
        match self {
            Self::Bytes => 256,
            Self::Characters => 100,
            Self::Gpt2 => 50_257,
        }
    }
}

/// Bytes of a corpus that are given to the BPE library at a time. It takes some hundred bytes for each.
const PIECE: usize = 1 << 20;

/// Why text cannot be encoded or ids decoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error(transparent)]
    /// GPT-2's files cannot be used.
    Gpt2(#[from] Gpt2Error),
    #[error(
        "the character {0:?} is not in the run's vocabulary, which has only those of its corpus; leave it out"
    )]
    /// A character that the vocabulary does not have.
    UnknownCharacter(char),
    #[error("the text is not UTF-8 (byte {at}), which the tokenizer \"{tokenizer}\" needs; convert it")]
    /// A text is not UTF-8, which the tokenizer needs.
    NotUtf8 {
        /// Byte offset of the first fault.
        at: usize,
        /// Name of the tokenizer.
        tokenizer: &'static str,
    },
    #[error("there is no token {id} in a vocabulary of {vocabulary}; take ids from the run's own model")]
    /// An id lies outside the vocabulary.
    UnknownId {
        /// The id.
        id: u32,
        /// V.
        vocabulary: u32,
    },
    #[error("the BPE library failed: {0}")]
    /// The BPE library failed, in its words.
    Library(String),
    #[error("the run was made with other BPE files; give the same folder in data.tokenizer_files")]
    /// The BPE files are not those of the run.
    OtherFiles,
}

/// What is stored with a run, so that its tokenizer can be made again without its corpus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SavedTokenizer {
    /// One token a byte.
    Bytes,
    /// The characters in the order of their ids.
    Characters {
        /// All of them.
        characters: String,
    },
    /// GPT-2's.
    Gpt2 {
        /// blake3 of the two files, in hexadecimal.
        files: String,
        /// Whether `<|endoftext|>` in a text is its one token.
        #[serde(default)]
        end_of_text: bool,
    },
}

#[derive(Debug)]
enum Inner {
    Bytes,
    Characters(Characters),
    Gpt2(Box<Gpt2>),
}

/// Text to token ids and back.
#[derive(Debug)]
pub struct Tokenizer(Inner);

impl Tokenizer {
    /// One token for each of the 256 bytes.
    pub fn bytes() -> Self {
        Self(Inner::Bytes)
    }

    /// One token for each distinct character of `text`.
    pub fn characters(text: &str) -> Self {
        Self(Inner::Characters(Characters::of(text)))
    }

    /// One token for each of these characters.
    pub fn of_characters(characters: Characters) -> Self {
        Self(Inner::Characters(characters))
    }

    /// GPT-2's BPE with the vocabulary in `files`, or its own. With `end_of_text`, each `<|endoftext|>` in a text is the
    /// one token that ends a document; else it is seven tokens of ordinary text.
    ///
    /// # Errors
    /// Files that cannot be read or do not fit together, or have no such token.
    pub fn gpt2(files: Option<&Path>, end_of_text: bool) -> Result<Self, TokenizerError> {
        let gpt2 = match files {
            Some(folder) => Gpt2::from_folder(folder)?,
            None => Gpt2::built_in()?,
        };
        let gpt2 = if end_of_text { gpt2.with_end_of_text()? } else { gpt2 };
        Ok(Self(Inner::Gpt2(Box::new(gpt2))))
    }

    /// A GPT-2 BPE of another vocabulary.
    pub fn of_gpt2(gpt2: Gpt2) -> Self {
        Self(Inner::Gpt2(Box::new(gpt2)))
    }

    /// The BPE, if it is one.
    pub fn as_gpt2(&self) -> Option<&Gpt2> {
        match &self.0 {
            Inner::Gpt2(gpt2) => Some(gpt2),
            Inner::Bytes | Inner::Characters(_) => None,
        }
    }

    /// The tokenizer of a stored run; `files` as in [`Tokenizer::gpt2`].
    ///
    /// # Errors
    /// A vocabulary that is damaged, or files that are missing or others.
    pub fn restore(saved: &SavedTokenizer, files: Option<&Path>) -> Result<Self, TokenizerError> {
        match saved {
            SavedTokenizer::Bytes => Ok(Self::bytes()),
            SavedTokenizer::Characters { characters } => Ok(Self::characters(characters)),
            SavedTokenizer::Gpt2 { end_of_text, .. } => {
                let made = Self::gpt2(files, *end_of_text)?;
                if made.save() == *saved { Ok(made) } else { Err(TokenizerError::OtherFiles) }
            }
        }
    }

    /// What restores it.
    pub fn save(&self) -> SavedTokenizer {
        match &self.0 {
            Inner::Bytes => SavedTokenizer::Bytes,
            Inner::Characters(c) => SavedTokenizer::Characters { characters: c.as_text() },
            Inner::Gpt2(g) => {
                let (files, end_of_text) = (g.hash().to_hex().to_string(), g.end_of_text().is_some());
                SavedTokenizer::Gpt2 { files, end_of_text }
            }
        }
    }

    /// Which one it is.
    pub fn kind(&self) -> TokenizerKind {
        match &self.0 {
            Inner::Bytes => TokenizerKind::Bytes,
            Inner::Characters(_) => TokenizerKind::Characters,
            Inner::Gpt2(_) => TokenizerKind::Gpt2,
        }
    }

    /// V.
    pub fn vocabulary(&self) -> u32 {
        match &self.0 {
            Inner::Bytes => 256,
            Inner::Characters(c) => c.len() as u32,
            Inner::Gpt2(g) => g.len() as u32,
        }
    }

    /// Equal for tokenizers that give equal ids.
    pub fn hash(&self) -> Hash {
        match &self.0 {
            Inner::Bytes => blake3::hash(b"bytes"),
            Inner::Characters(c) => blake3::hash(format!("characters {}", c.as_text()).as_bytes()),
            Inner::Gpt2(g) => {
                let special = if g.end_of_text().is_some() { " with end of text" } else { "" };
                blake3::hash(format!("gpt2 {}{special}", g.hash()).as_bytes())
            }
        }
    }

    /// Ids of `text`. Nothing in it is special but `<|endoftext|>`, for a tokenizer that was made so.
    ///
    /// # Errors
    /// A character that the vocabulary does not have.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        match &self.0 {
            Inner::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Inner::Characters(c) => {
                text.chars().map(|x| c.id(x).ok_or(TokenizerError::UnknownCharacter(x))).collect()
            }
            Inner::Gpt2(g) => g.encode(text).map_err(TokenizerError::Library),
        }
    }

    /// Ids of bytes that need not be UTF-8 for the bytes tokenizer, and must be for the others.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`], and bytes that are not UTF-8.
    pub fn encode_bytes(&self, bytes: &[u8]) -> Result<Vec<u32>, TokenizerError> {
        if let Inner::Bytes = self.0 {
            return Ok(bytes.iter().copied().map(u32::from).collect());
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|e| TokenizerError::NotUtf8 { at: e.valid_up_to(), tokenizer: self.kind().name() })?;
        self.encode(text)
    }

    /// Ids of bytes with U+FFFD for each maximal part that is not UTF-8; the bytes tokenizer keeps them.
    ///
    /// # Errors
    /// As for [`Tokenizer::encode`].
    pub fn encode_lossy(&self, bytes: &[u8]) -> Result<Vec<u32>, TokenizerError> {
        match self.0 {
            Inner::Bytes => self.encode_bytes(bytes),
            _ => self.encode(&String::from_utf8_lossy(bytes)),
        }
    }

    /// A text that a model of this tokenizer can continue when nobody says which: an empty line, or the first character
    /// of a vocabulary without line ends.
    pub fn usual_prompt(&self) -> String {
        match &self.0 {
            Inner::Characters(c) if c.id('\n').is_none() => {
                c.character(0).map(String::from).unwrap_or_default()
            }
            _ => "\n".into(),
        }
    }

    /// Bytes of `ids`. A sequence cut in the middle of a character is not UTF-8.
    ///
    /// # Errors
    /// An id beyond the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, TokenizerError> {
        let mut bytes = Vec::with_capacity(ids.len());
        for id in ids {
            let unknown = || TokenizerError::UnknownId { id: *id, vocabulary: self.vocabulary() };
            match &self.0 {
                Inner::Bytes => bytes.push(u8::try_from(*id).map_err(|_| unknown())?),
                Inner::Characters(c) => {
                    let character = c.character(*id).ok_or_else(unknown)?;
                    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Inner::Gpt2(g) => bytes.extend_from_slice(g.token(*id).ok_or_else(unknown)?),
            }
        }
        Ok(bytes)
    }

    /// Text of `ids`, with U+FFFD for what is not UTF-8.
    ///
    /// # Errors
    /// As for [`Tokenizer::decode`].
    pub fn decode_text(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        Ok(String::from_utf8_lossy(&self.decode(ids)?).into_owned())
    }

    /// Names and contents of the files by which `transformers` knows this tokenizer; none for those it does not have.
    pub fn files(&self) -> Vec<(&'static str, &str)> {
        match &self.0 {
            Inner::Gpt2(g) => g.files().to_vec(),
            Inner::Bytes | Inner::Characters(_) => vec![],
        }
    }

    /// Ids of a corpus, shown to `see` some at a time: memory does not grow with the text. `progress` sees all
    /// bytes of the text as they are read.
    ///
    /// # Errors
    /// What the corpus or the tokenizer has, or what `see` says.
    pub fn encode_corpus<E>(
        &self,
        corpus: &Corpus,
        mut progress: impl FnMut(&[u8]),
        mut see: impl FnMut(&[u32]) -> Result<(), E>,
    ) -> Result<(), E>
    where
        E: From<CorpusError> + From<TokenizerError>,
    {
        let name = self.kind().name();
        match &self.0 {
            Inner::Bytes => corpus.read(|bytes| {
                progress(bytes);
                see(&self.encode_bytes(bytes)?)
            }),
            Inner::Characters(_) => corpus.read_text(name, |text| {
                progress(text.as_bytes());
                see(&self.encode(text)?)
            }),
            Inner::Gpt2(gpt2) => {
                let mut held = String::new();
                corpus.read_text(name, |text| {
                    progress(text.as_bytes());
                    held.push_str(text);
                    if held.len() > PIECE
                        && let Some(cut) = gpt2.first_cut(&held, PIECE)
                    {
                        let rest = held.split_off(cut);
                        see(&self.encode(&std::mem::replace(&mut held, rest))?)?;
                    }
                    Ok::<(), E>(())
                })?;
                see(&self.encode(&held)?)
            }
        }
    }
}
