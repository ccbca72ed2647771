//! GPT-2's byte-level BPE, through the crate `tokenizers`.

use std::{
    collections::HashMap,
    fmt,
    io::Read,
    path::{Path, PathBuf},
};

use super::bpe_cuts::Cuts;
use blake3::{Hash, Hasher};
use flate2::read::ZlibDecoder;
use tokenizers::{
    Tokenizer as Library,
    models::bpe::{BPE, Vocab},
    pre_tokenizers::byte_level::ByteLevel,
};

/// The files of OpenAI's release, compressed; their licences lie beside the originals.
const ENCODER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/encoder.json.z"));
const MERGES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vocab.bpe.z"));

/// The one special token: it ends a document.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// Name of the file of token to id in a checkpoint.
pub const VOCABULARY_FILE: &str = "vocab.json";
/// Name of the file of merges by rank in a checkpoint.
pub const MERGES_FILE: &str = "merges.txt";

/// Text is cut into pieces of about this many bytes, which the library encodes in parallel.
const PIECE: usize = 1 << 16;

/// Why a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Gpt2Error {
    #[error("data.tokenizer_files: cannot read {path}: {error}; the folder must hold encoder.json and vocab.bpe", path = path.display())]
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    #[error(
        "data.tokenizer_files: {name} is not GPT-2's: {what}; take encoder.json and vocab.bpe of one release"
    )]
    /// A file is not what it should be.
    Faulty {
        /// Name of the file.
        name: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

/// Encodes any text; decodes to the very bytes.
pub struct Gpt2 {
    library: Library,
    /// Bytes of each token by id; None where the vocabulary has no such id.
    bytes: Vec<Option<Vec<u8>>>,
    /// The id of `<|endoftext|>`, where the vocabulary has one.
    known_end_of_text: Option<u32>,
    /// The same, where a text may hold it.
    end_of_text: Option<u32>,
    cuts: Cuts,
    hash: Hash,
    /// The two files as they are.
    files: Box<[String; 2]>,
}

impl fmt::Debug for Gpt2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpt2({} tokens, {})", self.bytes.len(), self.hash)
    }
}

impl Gpt2 {
    /// GPT-2's own vocabulary of 50,257 tokens.
    ///
    /// # Errors
    /// Files in the program that are damaged.
    pub fn built_in() -> Result<Self, Gpt2Error> {
        Self::parse(inflate("encoder.json", ENCODER)?, inflate("vocab.bpe", MERGES)?)
    }

    /// From `encoder.json` (token to id) and `vocab.bpe` (merges by rank) in `folder`; a checkpoint has them as
    /// `transformers` calls them, [`VOCABULARY_FILE`] and [`MERGES_FILE`].
    ///
    /// # Errors
    /// Files that cannot be read or do not fit together.
    pub fn from_folder(folder: &Path) -> Result<Self, Gpt2Error> {
        let read = |names: [&str; 2]| {
            let [ours, other] = names.map(|name| folder.join(name));
            let path = if other.exists() { other } else { ours };
            std::fs::read_to_string(&path).map_err(|error| Gpt2Error::Unreadable { path, error })
        };
        Self::parse(read(["encoder.json", VOCABULARY_FILE])?, read(["vocab.bpe", MERGES_FILE])?)
    }

    /// From the texts of `encoder.json` and `vocab.bpe`.
    ///
    /// # Errors
    /// Texts that do not fit together.
    pub fn parse(encoder: String, merges: String) -> Result<Self, Gpt2Error> {
        let mut hasher = Hasher::new();
        for file in [&encoder, &merges] {
            hasher.update(&(file.len() as u64).to_le_bytes());
            hasher.update(file.as_bytes());
        }
        let faulty = |name, what: String| Gpt2Error::Faulty { name, what };
        let ids: HashMap<String, u32> =
            serde_json::from_str(&encoder).map_err(|e| faulty("encoder.json", e.to_string()))?;
        let pairs = parse_merges(&merges, &ids).map_err(|what| faulty("vocab.bpe", what))?;
        let bytes = byte_table(&ids).map_err(|what| faulty("encoder.json", what))?;
        let known_end_of_text = ids.get(END_OF_TEXT).copied();
        let cuts = Cuts::of(&pairs, |token| bytes.get(*ids.get(token)? as usize)?.as_deref());
        let vocabulary: Vocab = ids.into_iter().collect();
        let model = BPE::builder()
            .vocab_and_merges(vocabulary, pairs)
            .build()
            .map_err(|e| faulty("vocab.bpe", e.to_string()))?;
        let mut library = Library::new(model);
        library.with_pre_tokenizer(Some(ByteLevel::new(false, false, true)));
        let files = Box::new([encoder, merges]);
        let hash = hasher.finalize();
        Ok(Self { library, bytes, known_end_of_text, end_of_text: None, cuts, hash, files })
    }

    /// V.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Where a text may be cut.
    pub fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// The files, under the names that `transformers` gives them.
    pub fn files(&self) -> [(&'static str, &str); 2] {
        let [vocabulary, merges] = &*self.files;
        [(VOCABULARY_FILE, vocabulary), (MERGES_FILE, merges)]
    }

    /// blake3 of both files.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// The id of `<|endoftext|>`, where the vocabulary has it, whether or not texts may hold it.
    pub fn known_end_of_text(&self) -> Option<u32> {
        self.known_end_of_text
    }

    /// Takes each `<|endoftext|>` in a text for its one token from now on.
    ///
    /// # Errors
    /// A vocabulary without that token.
    pub fn with_end_of_text(self) -> Result<Self, Gpt2Error> {
        let Some(id) = self.known_end_of_text else {
            let what = format!("it has no {END_OF_TEXT}, which data.end_of_text asks for");
            return Err(Gpt2Error::Faulty { name: "encoder.json", what });
        };
        Ok(Self { end_of_text: Some(id), ..self })
    }

    /// The id that each `<|endoftext|>` in a text becomes; None where it is seven tokens of ordinary text.
    pub fn end_of_text(&self) -> Option<u32> {
        self.end_of_text
    }

    /// Ids of a text.
    ///
    /// # Errors
    /// The library's words; no text is known that has any.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let Some(end_of_text) = self.end_of_text else { return self.encode_ordinary(text) };
        let mut ids = Vec::new();
        for (i, part) in text.split(END_OF_TEXT).enumerate() {
            if i > 0 {
                ids.push(end_of_text);
            }
            ids.extend(self.encode_ordinary(part)?);
        }
        Ok(ids)
    }

    fn encode_ordinary(&self, text: &str) -> Result<Vec<u32>, String> {
        let encodings = self
            .library
            .encode_batch_fast(self.cuts.pieces(text, PIECE).collect(), false)
            .map_err(|e| e.to_string())?;
        Ok(encodings.iter().flat_map(|e| e.get_ids()).copied().collect())
    }

    /// The first place at `size` bytes or later where a text that goes on may be cut without changing its tokens; None
    /// where more of it is needed.
    pub fn first_cut(&self, text: &str, size: usize) -> Option<usize> {
        if self.end_of_text.is_none() {
            return self.cuts.first(text, size);
        }
        let mut from = size;
        loop {
            let cut = self.cuts.first(text, from)?;
            // What is cut off must not be the beginning of an `<|endoftext|>`, nor may one have begun that is not all here.
            let around = text.floor_char_boundary(cut.saturating_sub(END_OF_TEXT.len() - 1));
            if cut + END_OF_TEXT.len() > text.len() {
                return None;
            }
            match text[around..].find(END_OF_TEXT).map(|at| around + at) {
                Some(begin) if begin < cut && cut < begin + END_OF_TEXT.len() => {
                    from = begin + END_OF_TEXT.len();
                }
                _ => return Some(cut),
            }
        }
    }

    /// Bytes of one token.
    pub fn token(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize)?.as_deref()
    }
}

fn inflate(name: &'static str, compressed: &[u8]) -> Result<String, Gpt2Error> {
    let mut text = String::new();
    ZlibDecoder::new(compressed)
        .read_to_string(&mut text)
        .map_err(|e| Gpt2Error::Faulty { name, what: e.to_string() })?;
    Ok(text)
}

/// Pairs by rank. The library indexes by these without a check, so each must lead to a known token.
fn parse_merges(text: &str, ids: &HashMap<String, u32>) -> Result<Vec<(String, String)>, String> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with("#version") && !line.is_empty());
    lines
        .map(|(line, number)| {
            let (left, right) = line
                .split_once(' ')
                .ok_or_else(|| format!("line {number} is not two tokens with a space"))?;
            let known = [left, right, &format!("{left}{right}")].iter().all(|t| ids.contains_key(*t));
            if known {
                Ok((left.to_owned(), right.to_owned()))
            } else {
                Err(format!("line {number} joins tokens that encoder.json does not have"))
            }
        })
        .collect()
}

/// Bytes of every token, by id.
fn byte_table(ids: &HashMap<String, u32>) -> Result<Vec<Option<Vec<u8>>>, String> {
    let letters: HashMap<char, u8> = (0..=255).map(|byte| (letter(byte), byte)).collect();
    if let Some(byte) = (0..=255u8).find(|b| !ids.contains_key(letter(*b).to_string().as_str())) {
        return Err(format!("it has no token for byte {byte}"));
    }
    // Ids far above the number of tokens would cost memory for nothing.
    let size = ids.values().max().map_or(0, |id| *id as usize + 1);
    if size > 2 * ids.len() {
        return Err(format!("its {} tokens have ids up to {}", ids.len(), size - 1));
    }
    let mut table = vec![None; size];
    for (token, id) in ids {
        let bytes = token.chars().map(|c| letters.get(&c).copied()).collect::<Option<Vec<u8>>>();
        // Special tokens are spelled in plain text.
        table[*id as usize] = Some(bytes.unwrap_or_else(|| token.as_bytes().to_vec()));
    }
    Ok(table)
}

/// The character that stands for a byte in the vocabulary: itself if it can be seen, else one from U+0100 on
/// (`bytes_to_unicode` of OpenAI's encoder.py).
pub(crate) fn letter(byte: u8) -> char {
    let seen = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if seen(byte) {
        char::from(byte)
    } else {
        let number = (0..byte).filter(|b| !seen(*b)).count() as u32;
        char::from_u32(256 + number).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}
