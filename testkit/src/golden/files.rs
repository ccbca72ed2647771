//! Golden files, read.

use std::collections::BTreeMap;

use safetensors::{Dtype, SafeTensors};
use serde::de::DeserializeOwned;

use super::Source;
use crate::{block::BlockError, parameters::ParameterError, stage::StageError};

/// Why a check against golden vectors did not pass.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GoldenError {
    #[error("the golden file `{0}` is missing")]
    Missing(String),
    #[error("the golden file `{file}` cannot be used: {reason}")]
    Malformed { file: String, reason: String },
    #[error("there are no golden files to check against")]
    Nothing,
    #[error("{place} failed: {error}")]
    Stage { place: String, error: StageError },
    #[error("{place} failed: {error}")]
    Block { place: String, error: BlockError },
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    #[error("results differ from the golden ones: {0}")]
    Off(String),
}

/// A JSON file.
pub(super) fn json<T: DeserializeOwned>(source: Source<'_>, file: &str) -> Result<T, GoldenError> {
    let bytes = bytes(source, file)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| GoldenError::Malformed { file: file.into(), reason: error.to_string() })
}

pub(super) fn bytes(source: Source<'_>, file: &str) -> Result<Vec<u8>, GoldenError> {
    source(file).ok_or_else(|| GoldenError::Missing(file.into()))
}

/// A safetensors file: floats and ids.
pub(super) struct Tensors {
    file: String,
    floats: BTreeMap<String, Vec<f32>>,
    ids: BTreeMap<String, Vec<u32>>,
}

impl Tensors {
    pub fn open(source: Source<'_>, file: &str) -> Result<Self, GoldenError> {
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

    pub fn floats(&self, name: &str) -> Result<&[f32], GoldenError> {
        self.floats.get(name).map(Vec::as_slice).ok_or_else(|| self.without(name))
    }

    pub fn ids(&self, name: &str) -> Result<&[u32], GoldenError> {
        self.ids.get(name).map(Vec::as_slice).ok_or_else(|| self.without(name))
    }

    fn without(&self, name: &str) -> GoldenError {
        GoldenError::Malformed { file: self.file.clone(), reason: format!("it has no `{name}`") }
    }
}
