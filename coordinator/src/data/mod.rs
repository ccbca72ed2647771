//! From a corpus to batches of token windows: read, tokenise once, cut.

pub mod block_windows;
pub mod characters;
pub mod corpus;
pub mod gpt2;
pub mod permutation;
pub mod token_file;
pub mod tokenizer;
pub mod windows;

use std::{path::Path, sync::Arc};

use crate::{config::DataConfig, storage::data_dir::DataDir};
use corpus::{Corpus, CorpusError, Source};
use token_file::{TokenFile, TokenFileError, TokenKey, TokenWriter};
use tokenizer::{Tokenizer, TokenizerError, TokenizerKind};
use windows::{SplitTooShort, TrainWindows, ValidationWindows, WindowShape};

/// Everything that can keep a run from its data.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    TokenFile(#[from] TokenFileError),
    #[error(transparent)]
    Windows(#[from] SplitTooShort),
}

/// A tokenised corpus, ready to be cut into windows.
#[derive(Debug)]
pub struct Dataset {
    /// The corpus, for people to read.
    pub corpus: String,
    pub tokenizer: Tokenizer,
    pub tokens: Arc<TokenFile>,
    source_hash: String,
}

impl Dataset {
    /// Tokenise `source`, or take the token file an earlier call left in `folder` if it still matches.
    ///
    /// `tokenizer_files` is the folder of `encoder.json` and `vocab.bpe`; without one, GPT-2's own files come
    /// out of the binary. The last `validation_fraction` of the tokens is held out. Blocks on disk and
    /// processor.
    pub fn prepare(
        source: &Source,
        kind: TokenizerKind,
        tokenizer_files: Option<&Path>,
        validation_fraction: f64,
        folder: &Path,
    ) -> Result<Self, DataError> {
        // The characters are only known from the text; the others need it on a miss alone.
        let (tokenizer, mut corpus) = match kind {
            TokenizerKind::Bytes => (Tokenizer::bytes(), None),
            TokenizerKind::Gpt2 => (Tokenizer::gpt2(tokenizer_files)?, None),
            TokenizerKind::Characters => {
                let corpus = Corpus::load(source)?;
                (Tokenizer::characters(corpus.text("characters")?), Some(corpus))
            }
        };
        let source_hash = match &corpus {
            Some(corpus) => corpus.hash,
            None => corpus::fingerprint(source)?,
        };
        let key = TokenKey { tokenizer: tokenizer.hash(), source: source_hash, validation_fraction };
        let path = folder.join(key.file_name());
        // Whatever is wrong with an old file, a new one mends it.
        if let Ok(tokens) = TokenFile::open(&path, &key) {
            let (corpus, source_hash) = (source.to_string(), key.source.to_hex().to_string());
            return Ok(Self { corpus, tokenizer, tokens: Arc::new(tokens), source_hash });
        }
        let corpus = match corpus.take() {
            Some(corpus) => corpus,
            None => Corpus::load(source)?,
        };
        // The file may have changed since it was fingerprinted: what was read counts.
        let key = TokenKey { source: corpus.hash, ..key };
        let path = folder.join(key.file_name());
        let mut writer = TokenWriter::create(&path, &key, tokenizer.vocabulary())?;
        for piece in tokenizer.pieces(&corpus)? {
            writer.push(&tokenizer.encode_bytes(piece)?)?;
        }
        let tokens = writer.finish()?;
        let (corpus, source_hash) = (source.to_string(), key.source.to_hex().to_string());
        Ok(Self { corpus, tokenizer, tokens: Arc::new(tokens), source_hash })
    }

    /// The data of a run, from its folder's cache where it is there.
    ///
    /// # Errors
    /// As for [`Dataset::prepare`].
    pub(crate) fn of_run(data: &DataConfig, data_dir: &DataDir) -> Result<Self, DataError> {
        let files = data.tokenizer_files.as_deref();
        Self::prepare(&data.source, data.tokenizer, files, data.validation_fraction, &data_dir.tokens())
    }

    /// blake3 of the text, in hexadecimal.
    pub fn source_hash(&self) -> &str {
        &self.source_hash
    }

    /// Batches of the training split, in the order that `seed` gives.
    pub fn train_windows(
        &self,
        seed: u64,
        shape: WindowShape,
        micro_batches: u32,
    ) -> Result<TrainWindows, SplitTooShort> {
        TrainWindows::new(self.tokens.clone(), seed, shape, micro_batches)
    }

    /// Batches of the held-out split, in the order of the text.
    pub fn validation_windows(&self, shape: WindowShape) -> Result<ValidationWindows, SplitTooShort> {
        ValidationWindows::new(self.tokens.clone(), shape)
    }
}
