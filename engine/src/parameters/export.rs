//! Parameters to a safetensors file.

use std::{borrow::Cow, collections::HashMap};

use half::f16;
use protocol::spec::Moments;
use safetensors::{Dtype, View};

use super::{ParameterError, ParameterSet, Quantity};

/// Metadata: optimizer steps the weights have seen.
pub(crate) const STEPS: &str = "steps";
/// Tensor [1] of I64: updates AdamW's state has seen.
pub(super) const ADAM_STEPS: &str = "adam_steps";

pub(super) fn first_moment(name: &str) -> String {
    format!("adam_m.{name}")
}

pub(super) fn second_moment(name: &str) -> String {
    format!("adam_v.{name}")
}

/// Tensor [1] of F32: what the f16 moment beside it was divided by.
pub(super) fn scale_of(moment: &str) -> String {
    format!("{moment}.scale")
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
pub(super) async fn export(set: &ParameterSet, moments: Moments) -> Result<Vec<u8>, ParameterError> {
    let mut entries = Vec::new();
    // Moments of zero updates are no moments: AdamW starts afresh without them.
    let moments = if set.adam_steps > 0 { moments } else { Moments::None };
    for (index, shape) in set.shapes.iter().enumerate() {
        entries.push((shape.name.clone(), entry(set, index, Quantity::Value).await?));
        let pair = [
            (first_moment(&shape.name), Quantity::FirstMoment),
            (second_moment(&shape.name), Quantity::SecondMoment),
        ];
        match moments {
            Moments::None => {}
            Moments::Full => {
                for (name, quantity) in pair {
                    entries.push((name, entry(set, index, quantity).await?));
                }
            }
            Moments::F16 => {
                for (name, quantity) in pair {
                    let (halves, scale) = halved(set, index, quantity).await?;
                    entries.push((scale_of(&name), scale));
                    entries.push((name, halves));
                }
            }
        }
    }
    if moments != Moments::None {
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

/// A moment in f16, and its scale.
///
/// f16 spans 6e-8 to 65504: a moment is divided by its largest entry first. Of the second moment the square root
/// is kept, whose range is half as wide in the exponent and is what AdamW divides by.
async fn halved(
    set: &ParameterSet,
    index: usize,
    quantity: Quantity,
) -> Result<(Entry<'static>, Entry<'static>), ParameterError> {
    let values = set.read(index, quantity).await?;
    let root = |value: f32| if quantity == Quantity::SecondMoment { libm::sqrtf(value) } else { value };
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(root(*value).abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    let bytes: Vec<u8> =
        values.iter().flat_map(|value| f16::from_f32(root(*value) / scale).to_le_bytes()).collect();
    let halves =
        Entry { dtype: Dtype::F16, shape: set.shapes[index].shape.clone(), bytes: Cow::Owned(bytes) };
    let scale = Entry { dtype: Dtype::F32, shape: vec![1], bytes: Cow::Owned(scale.to_le_bytes().to_vec()) };
    Ok((halves, scale))
}

/// One quantity of one parameter, in its true shape.
pub(crate) async fn entry(
    set: &ParameterSet,
    index: usize,
    quantity: Quantity,
) -> Result<Entry<'_>, ParameterError> {
    let bytes = match set.read(index, quantity).await? {
        // A large model's parameters are not held twice for being written.
        Cow::Borrowed(values) if cfg!(target_endian = "little") => {
            Cow::Borrowed(bytemuck::cast_slice(values))
        }
        values => Cow::Owned(values.iter().flat_map(|value| value.to_le_bytes()).collect()),
    };
    Ok(Entry { dtype: Dtype::F32, shape: set.shapes[index].shape.clone(), bytes })
}
