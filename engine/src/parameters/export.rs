//! Parameters to a safetensors file.

use std::{borrow::Cow, collections::HashMap};

use safetensors::{Dtype, View};

use super::{ParameterError, ParameterSet, Quantity};

/// Metadata: optimizer steps the weights have seen.
pub(super) const STEPS: &str = "steps";
/// Tensor [1] of I64: updates AdamW's state has seen.
pub(super) const ADAM_STEPS: &str = "adam_steps";

pub(super) fn first_moment(name: &str) -> String {
    format!("adam_m.{name}")
}

pub(super) fn second_moment(name: &str) -> String {
    format!("adam_v.{name}")
}

/// A tensor on its way into a file.
pub(crate) struct Entry<'a> {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Cow<'a, [u8]>,
}

impl View for Entry<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// See [`ParameterSet::export`].
pub(super) async fn export(set: &ParameterSet, moments: bool) -> Result<Vec<u8>, ParameterError> {
    let mut entries = Vec::new();
    // Moments of zero updates are no moments: AdamW starts afresh without them.
    let moments = moments && set.adam_steps > 0;
    for (index, shape) in set.shapes.iter().enumerate() {
        entries.push((shape.name.clone(), entry(set, index, Quantity::Value).await?));
        if moments {
            entries.push((first_moment(&shape.name), entry(set, index, Quantity::FirstMoment).await?));
            entries.push((second_moment(&shape.name), entry(set, index, Quantity::SecondMoment).await?));
        }
    }
    if moments {
        let bytes = (set.adam_steps as i64).to_le_bytes().to_vec();
        let steps = Entry { dtype: Dtype::I64, shape: vec![1], bytes: Cow::Owned(bytes) };
        entries.push((ADAM_STEPS.into(), steps));
    }
    // One key only: the order of several would change from file to file, and with it the file's hash.
    write(entries, (STEPS, &set.steps_done.to_string()))
}

/// A safetensors file of `entries` with one line of metadata.
pub(crate) fn write(
    entries: Vec<(String, Entry<'_>)>,
    metadata: (&str, &str),
) -> Result<Vec<u8>, ParameterError> {
    let metadata = HashMap::from([(metadata.0.to_owned(), metadata.1.to_owned())]);
    safetensors::serialize(entries, Some(metadata)).map_err(|error| ParameterError::Format(error.to_string()))
}

/// One quantity of one parameter, in its true shape.
pub(crate) async fn entry(
    set: &ParameterSet,
    index: usize,
    quantity: Quantity,
) -> Result<Entry<'static>, ParameterError> {
    let values = set.read(index, quantity).await?;
    let mut bytes = vec![0; 4 * values.len()];
    for (bytes, value) in bytes.chunks_exact_mut(4).zip(values.iter()) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    Ok(Entry { dtype: Dtype::F32, shape: set.shapes[index].shape.clone(), bytes: Cow::Owned(bytes) })
}
