//! From a corpus to batches of token windows: read, tokenise once, cut.

pub mod block_windows;
pub mod bpe_cuts;
pub mod characters;
pub mod corpus;
pub mod gpt2;
pub mod permutation;
pub mod token_file;
pub mod tokenizer;
mod utf8_stream;
pub mod windows;

use std::{path::Path, sync::Arc};

use blake3::{Hash, Hasher};
use characters::CharacterSet;
use corpus::{Corpus, CorpusError, Source};
use token_file::{TokenFile, TokenFileError, TokenKey, TokenWriter};
use tokenizer::{Tokenizer, TokenizerError, TokenizerKind};
use windows::{SplitTooShort, TrainWindows, ValidationWindows, WindowShape};

/// A text of more bytes than this takes long enough to say how far it is.
const LONG: u64 = 32 << 20;

/// Everything that can keep a run from its data.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(transparent)]
    /// The text.
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    /// The tokenizer.
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    /// The token file.
    TokenFile(#[from] TokenFileError),
    #[error(transparent)]
    /// A split without one window.
    Windows(#[from] SplitTooShort),
}

/// A tokenizer, before its files are read and, for characters, the text.
#[derive(Debug, Clone, Copy)]
pub struct TokenizerChoice<'a> {
    /// Which one.
    pub kind: TokenizerKind,
    /// Of GPT-2's, the folder of `encoder.json` and `vocab.bpe`; None: the files in the program.
    pub files: Option<&'a Path>,
    /// Of GPT-2's, whether `<|endoftext|>` in the text is its one token.
    pub end_of_text: bool,
}

impl From<TokenizerKind> for TokenizerChoice<'_> {
    /// With everything else as it is by default.
    fn from(kind: TokenizerKind) -> Self {
        Self { kind, files: None, end_of_text: false }
    }
}

/// A tokenised corpus, ready to be cut into windows.
#[derive(Debug)]
pub struct Dataset {
    /// The corpus, for people to read.
    pub corpus: String,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// The ids of the whole corpus.
    pub tokens: Arc<TokenFile>,
    source_hash: String,
}

impl Dataset {
    /// Tokenises `source`, or takes the token file an earlier call left in `folder` if it still matches.
    ///
    /// The last `validation_fraction` of the tokens is held out. `own` is the folder of the run, which is never read as
    /// text. Blocks on disk and processor.
    ///
    /// # Errors
    /// A text or tokenizer that cannot be used, a folder that cannot be written.
    pub fn prepare(
        source: &Source,
        choice: TokenizerChoice<'_>,
        validation_fraction: f64,
        folder: &Path,
        own: Option<&Path>,
    ) -> Result<Self, DataError> {
        let corpus = Corpus::open(source, own)?;
        let TokenizerChoice { kind, files, end_of_text } = choice;
        let (tokenizer, source) = match kind {
            TokenizerKind::Bytes => (Tokenizer::bytes(), corpus.fingerprint()?),
            TokenizerKind::Gpt2 => (Tokenizer::gpt2(files, end_of_text)?, corpus.fingerprint()?),
            TokenizerKind::Characters => {
                let (mut set, mut hasher) = (CharacterSet::default(), Hasher::new());
                corpus.read_text(kind.name(), |text| -> Result<(), CorpusError> {
                    hasher.update(text.as_bytes());
                    set.add(text);
                    Ok(())
                })?;
                (Tokenizer::of_characters(set.characters()), hasher.finalize())
            }
        };
        let key = TokenKey { tokenizer: tokenizer.hash(), source, validation_fraction };
        let path = folder.join(key.file_name());
        // Whatever is wrong with an old file, a new one mends it.
        let tokens = match TokenFile::open(&path, &key) {
            Ok(tokens) => tokens,
            Err(_) => tokenise(&corpus, &tokenizer, &key, &path)?,
        };
        let source_hash = source.to_hex().to_string();
        Ok(Self { corpus: corpus.name, tokenizer, tokens: Arc::new(tokens), source_hash })
    }

    /// A tokenizer without a text, as of a run that only writes texts. Its empty token file lies in `folder`.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(crate) fn without_text(tokenizer: Tokenizer, folder: &Path) -> Result<Self, DataError> {
        let source = blake3::hash(b"");
        let key = TokenKey { tokenizer: tokenizer.hash(), source, validation_fraction: 0.0 };
        let tokens =
            TokenWriter::create(&folder.join(key.file_name()), &key, tokenizer.vocabulary())?.finish()?;
        let source_hash = source.to_hex().to_string();
        Ok(Self { corpus: "no text".into(), tokenizer, tokens: Arc::new(tokens), source_hash })
    }

    /// The dataset whose token file an earlier [`Dataset::prepare`] left in `folder`, without its text; None where it is
    /// not there.
    pub(crate) fn cached(
        corpus: String,
        tokenizer: Tokenizer,
        source_hash: String,
        validation_fraction: f64,
        folder: &Path,
    ) -> Option<Self> {
        let source = Hash::from_hex(&source_hash).ok()?;
        let key = TokenKey { tokenizer: tokenizer.hash(), source, validation_fraction };
        let tokens = TokenFile::open(&folder.join(key.file_name()), &key).ok()?;
        Some(Self { corpus, tokenizer, tokens: Arc::new(tokens), source_hash })
    }

    /// blake3 of the text, in hexadecimal.
    pub fn source_hash(&self) -> &str {
        &self.source_hash
    }

    /// Batches of the training split, in the order that `seed` gives.
    ///
    /// # Errors
    /// A split without one window.
    pub fn train_windows(
        &self,
        seed: u64,
        shape: WindowShape,
        micro_batches: u32,
    ) -> Result<TrainWindows, SplitTooShort> {
        TrainWindows::new(self.tokens.clone(), seed, shape, micro_batches)
    }

    /// Batches of the held-out split, in the order of the text.
    ///
    /// # Errors
    /// A split without one window.
    pub fn validation_windows(&self, shape: WindowShape) -> Result<ValidationWindows, SplitTooShort> {
        ValidationWindows::new(self.tokens.clone(), shape)
    }
}

/// Writes the token file of a corpus, in memory that does not grow with it; a long text says how far it is.
fn tokenise(
    corpus: &Corpus,
    tokenizer: &Tokenizer,
    key: &TokenKey,
    path: &Path,
) -> Result<TokenFile, DataError> {
    let mut writer = TokenWriter::create(path, key, tokenizer.vocabulary())?;
    let mut hasher = Hasher::new();
    let (mut read, mut said) = (0, 0);
    let progress = |bytes: &[u8]| {
        hasher.update(bytes);
        read += bytes.len() as u64;
        let tenths = read * 10 / corpus.size().max(1);
        if tenths > said && corpus.size() > LONG {
            said = tenths;
            tracing::info!("tokenising {}: {} %", corpus.name, tenths * 10);
        }
    };
    tokenizer.encode_corpus(corpus, progress, |ids| -> Result<(), DataError> { Ok(writer.push(ids)?) })?;
    if hasher.finalize() != key.source {
        return Err(CorpusError::Changed { name: corpus.name.clone() }.into());
    }
    Ok(writer.finish()?)
}
