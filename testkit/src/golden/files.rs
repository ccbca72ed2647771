//! Golden files, read.

use std::collections::BTreeMap;

use engine::{denoiser::BlockError, gpt2::StageError, parameters::ParameterError};
use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;

use super::Source;

/// Why a check against golden vectors did not pass.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GoldenError {
    /// The folder cannot be listed.
    #[error(
        "the folder {folder} of the golden vectors cannot be read: {reason}; COHORT_GOLDEN names another"
    )]
    Folder {
        /// Its path.
        folder: String,
        /// What the system says.
        reason: String,
    },
    /// The repository's own folder is not whole.
    #[error("the golden vectors of the repository lack {0}: restore tests/golden from version control")]
    Sets(String),
    /// A file that another refers to, or a number in it, is not there.
    #[error("the golden file or value {0} is missing")]
    Missing(String),
    /// A file does not hold what it should.
    #[error("the golden file `{file}` cannot be used: {reason}")]
    Malformed {
        /// Its name.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No file is of a set that can be checked.
    #[error("there are no golden files to check against")]
    Nothing,
    /// A stage refused a golden input.
    #[error("{place} failed: {error}")]
    Stage {
        /// Which set, split and step.
        place: String,
        /// Why.
        error: StageError,
    },
    /// A block refused a golden input.
    #[error("{place} failed: {error}")]
    Block {
        /// Which set and block.
        place: String,
        /// Why.
        error: BlockError,
    },
    /// Golden weights could not be loaded or read.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// Results outside their tolerances.
    #[error("results differ from the golden ones: {0}")]
    Off(String),
    /// Tolerances that the reference's own error does not justify.
    #[error("tolerances do not follow from the reference's own error: {0}")]
    Tolerances(String),
}

/// A JSON file.
pub(super) fn json<T: DeserializeOwned>(source: Source<'_>, file: &str) -> Result<T, GoldenError> {
    let bytes = bytes(source, file)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| GoldenError::Malformed { file: file.into(), reason: error.to_string() })
}

pub(super) fn bytes(source: Source<'_>, file: &str) -> Result<Vec<u8>, GoldenError> {
    source(file).ok_or_else(|| GoldenError::Missing(format!("`{file}`")))
}

/// A safetensors file: floats and ids.
pub(super) struct Tensors {
    file: String,
    floats: BTreeMap<String, Vec<f32>>,
    ids: BTreeMap<String, Vec<u32>>,
}

impl Tensors {
    pub(super) fn open(source: Source<'_>, file: &str) -> Result<Self, GoldenError> {
        let malformed = |reason: String| GoldenError::Malformed { file: file.into(), reason };
        let bytes = bytes(source, file)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| malformed(error.to_string()))?;
        let (mut floats, mut ids) = (BTreeMap::new(), BTreeMap::new());
        for (name, view) in tensors.iter() {
            let words = view.data().chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
            match view.dtype() {
                Dtype::F32 => {
                    floats.insert(name.to_owned(), words.map(f32::from_le_bytes).collect());
                }
                Dtype::I32 => {
                    ids.insert(name.to_owned(), words.map(u32::from_le_bytes).collect());
                }
                other => return Err(malformed(format!("`{name}` holds {other:?}"))),
            }
        }
        Ok(Tensors { file: file.into(), floats, ids })
    }

    pub(super) fn floats(&self, name: &str) -> Result<&[f32], GoldenError> {
        self.floats.get(name).map(Vec::as_slice).ok_or_else(|| self.without(name))
    }

    pub(super) fn ids(&self, name: &str) -> Result<&[u32], GoldenError> {
        self.ids.get(name).map(Vec::as_slice).ok_or_else(|| self.without(name))
    }

    fn without(&self, name: &str) -> GoldenError {
        GoldenError::Malformed { file: self.file.clone(), reason: format!("it has no `{name}`") }
    }
}
