//! The parts of a snapshot as one, without making parameters of them.

use std::{borrow::Cow, collections::BTreeMap};

use protocol::blob::BlobHash;
use safetensors::{SafeTensors, tensor::TensorView};

use super::{
    ParameterError, ParameterShape,
    export::{Entry, write},
    import::checked,
};

fn open<B: AsRef<[u8]>>(files: &[B]) -> Result<Vec<SafeTensors<'_>>, ParameterError> {
    files
        .iter()
        .map(|file| {
            SafeTensors::deserialize(file.as_ref()).map_err(|error| ParameterError::Format(error.to_string()))
        })
        .collect()
}

/// A safetensors file of the tensors of these shapes, in their order, as they lie in `files`.
pub(crate) fn gather<B: AsRef<[u8]>>(
    shapes: &[ParameterShape],
    files: &[B],
    metadata: (&str, &str),
) -> Result<Vec<u8>, ParameterError> {
    let files = open(files)?;
    let mut entries = Vec::with_capacity(shapes.len());
    for ParameterShape { name, shape, .. } in shapes {
        let view = files
            .iter()
            .find_map(|file| file.tensor(name).ok())
            .ok_or_else(|| ParameterError::Missing(name.clone()))?;
        checked(name, shape, &view)?;
        let entry = Entry { dtype: view.dtype(), shape: shape.clone(), bytes: Cow::Borrowed(view.data()) };
        entries.push((name.clone(), entry));
    }
    write(entries, metadata)
}

/// Hash of every tensor's name, kind, shape and bytes, in the order of the names. A tensor that several parts have
/// counts once.
pub(crate) fn digest<B: AsRef<[u8]>>(files: &[B]) -> Result<BlobHash, ParameterError> {
    let files = open(files)?;
    let tensors: BTreeMap<String, TensorView<'_>> = files.iter().flat_map(SafeTensors::tensors).collect();
    let mut hasher = blake3::Hasher::new();
    for (name, view) in &tensors {
        hasher.update(format!("{name} {:?} {:?}\n", view.dtype(), view.shape()).as_bytes());
        hasher.update(view.data());
    }
    Ok(BlobHash(*hasher.finalize().as_bytes()))
}
