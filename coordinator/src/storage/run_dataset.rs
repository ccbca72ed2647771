//! The dataset of a run, by its folder.

use super::data_dir::DataDir;
use crate::{
    config::DataConfig,
    data::{DataError, Dataset, tokenizer::Tokenizer},
};

impl Dataset {
    /// The data of a run, from its folder's cache where it is there.
    ///
    /// # Errors
    /// As for [`Dataset::prepare`].
    pub(crate) fn of_run(data: &DataConfig, data_dir: &DataDir) -> Result<Self, DataError> {
        let (tokens, own) = (data_dir.tokens(), Some(data_dir.root()));
        Self::prepare(&data.source, data.tokenizer_choice(), data.validation_fraction, &tokens, own)
    }

    /// The data that a run's folder holds, without its text; only where that is not enough, from the text.
    ///
    /// # Errors
    /// As for [`Dataset::prepare`].
    pub(crate) fn of_folder(data: &DataConfig, data_dir: &DataDir) -> Result<Self, DataError> {
        match Self::of_cache(data, data_dir) {
            Some(dataset) => Ok(dataset),
            None => Self::of_run(data, data_dir),
        }
    }

    fn of_cache(data: &DataConfig, data_dir: &DataDir) -> Option<Self> {
        let files = data_dir.tokenizer_files();
        let tokenizer = Tokenizer::restore(&data_dir.saved_tokenizer()?, files.as_deref()).ok()?;
        let (corpus, text) = (data.source.to_string(), data_dir.text_hash()?);
        Self::cached(corpus, tokenizer, text, data.validation_fraction, &data_dir.tokens())
    }
}
