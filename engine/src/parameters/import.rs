//! Parameters from safetensors files.

use half::{bf16, f16};
use protocol::checked::counter;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{
    Loaded, ParameterError, ParameterShape,
    export::{ADAM_STEPS, STEPS, first_moment, scale_of, second_moment},
};

pub(super) struct Imported {
    /// In the order asked for.
    pub parameters: Vec<Loaded>,
    pub steps_done: u64,
    pub adam_steps: u64,
}

/// See [`super::ParameterSet::import`].
pub(super) fn import<B: AsRef<[u8]>>(
    shapes: &[ParameterShape],
    files: &[B],
) -> Result<Imported, ParameterError> {
    let files: Vec<File<'_>> =
        files.iter().map(|file| File::open(file.as_ref())).collect::<Result<_, _>>()?;
    let steps_done = agreed(files.iter().filter_map(|file| file.steps), "the number of steps")?;
    let has_moments = shapes.iter().any(|shape| find(&files, &first_moment(&shape.name)).is_some());
    let mut adam_steps = 0;
    if has_moments {
        let steps = files.iter().filter_map(|file| file.adam_steps);
        adam_steps = agreed(steps, "AdamW's number of steps")?
            .ok_or_else(|| ParameterError::Missing(ADAM_STEPS.into()))?;
    }
    let parameters = shapes
        .iter()
        .map(|shape| {
            let value = load(&files, &shape.name, &shape.shape)?;
            let moments = if has_moments {
                let (first, _) = moment(&files, &first_moment(&shape.name), &shape.shape)?;
                Some((first, second(&files, &second_moment(&shape.name), &shape.shape)?))
            } else {
                None
            };
            Ok(Loaded { value, moments })
        })
        .collect::<Result<_, _>>()?;
    Ok(Imported { parameters, steps_done: steps_done.unwrap_or(0), adam_steps })
}

/// The values of any parameters, in the order asked for, without moments.
pub(crate) fn values<B: AsRef<[u8]>>(
    shapes: &[ParameterShape],
    files: &[B],
) -> Result<Vec<Vec<f32>>, ParameterError> {
    let files: Vec<File<'_>> =
        files.iter().map(|file| File::open(file.as_ref())).collect::<Result<_, _>>()?;
    shapes.iter().map(|shape| load(&files, &shape.name, &shape.shape)).collect()
}

struct File<'a> {
    tensors: SafeTensors<'a>,
    steps: Option<u64>,
    adam_steps: Option<u64>,
}

impl<'a> File<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, ParameterError> {
        let format = |error: safetensors::SafeTensorError| ParameterError::Format(error.to_string());
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(format)?;
        let steps = match header.metadata().as_ref().and_then(|metadata| metadata.get(STEPS)) {
            Some(text) => {
                let steps = text.parse().ok().filter(is_possible);
                let wrong = || ParameterError::Format(format!("`{text}` is not a number of steps"));
                Some(steps.ok_or_else(wrong)?)
            }
            None => None,
        };
        let tensors = SafeTensors::deserialize(bytes).map_err(format)?;
        let adam_steps = match tensors.tensor(ADAM_STEPS) {
            Ok(view) => Some(count(&view)?),
            Err(_) => None,
        };
        Ok(File { tensors, steps, adam_steps })
    }
}

fn count(view: &TensorView<'_>) -> Result<u64, ParameterError> {
    let wrong = || ParameterError::Format(format!("`{ADAM_STEPS}` is not one I64 from 0 to 2^53"));
    let bytes: [u8; 8] = view.data().try_into().map_err(|_| wrong())?;
    if view.dtype() != Dtype::I64 {
        return Err(wrong());
    }
    u64::try_from(i64::from_le_bytes(bytes)).ok().filter(is_possible).ok_or_else(wrong)
}

/// Whether a run can have done so many steps: one more can always be counted.
fn is_possible(steps: &u64) -> bool {
    counter(steps).is_ok()
}

/// The one value of all parts; None when no part has one.
fn agreed(mut values: impl Iterator<Item = u64>, what: &'static str) -> Result<Option<u64>, ParameterError> {
    let first = values.next();
    if values.any(|value| Some(value) != first) { Err(ParameterError::Disagree(what)) } else { Ok(first) }
}

/// The tensor called `name`, or what Hugging Face's bare `GPT2Model` calls it.
fn find<'a>(files: &[File<'a>], name: &str) -> Option<TensorView<'a>> {
    let bare = name.strip_prefix("transformer.");
    let tensor = |file: &File<'a>| {
        let found = file.tensors.tensor(name).ok();
        found.or_else(|| bare.and_then(|bare| file.tensors.tensor(bare).ok()))
    };
    files.iter().find_map(tensor)
}

/// A moment, and whether it was kept in f16 with a scale; then a second moment is still its square root.
fn moment(files: &[File<'_>], name: &str, shape: &[usize]) -> Result<(Vec<f32>, bool), ParameterError> {
    let mut values = load(files, name, shape)?;
    let scale = scale_of(name);
    if find(files, &scale).is_none() {
        return Ok((values, false));
    }
    let scale = load(files, &scale, &[1])?;
    values.iter_mut().zip(scale.iter().cycle()).for_each(|(value, scale)| *value *= scale);
    finite(name, &values)?;
    Ok((values, true))
}

/// A second moment, of which AdamW takes the root.
fn second(files: &[File<'_>], name: &str, shape: &[usize]) -> Result<Vec<f32>, ParameterError> {
    let (mut values, halved) = moment(files, name, shape)?;
    if halved {
        // The root of the largest number, rounded up, has a square beyond it.
        values.iter_mut().for_each(|root| *root = (*root * *root).min(f32::MAX));
    }
    if values.iter().all(|value| *value >= 0.0) {
        Ok(values)
    } else {
        Err(ParameterError::Negative(name.into()))
    }
}

fn load(files: &[File<'_>], name: &str, shape: &[usize]) -> Result<Vec<f32>, ParameterError> {
    let view = find(files, name).ok_or_else(|| ParameterError::Missing(name.into()))?;
    checked(name, shape, &view)
}

/// The numbers of a tensor that must have this shape and be finite floats.
pub(super) fn checked(
    name: &str,
    shape: &[usize],
    view: &TensorView<'_>,
) -> Result<Vec<f32>, ParameterError> {
    if view.shape() != shape {
        let (found, expected) = (view.shape().to_vec(), shape.to_vec());
        return Err(ParameterError::Shape { name: name.into(), found, expected });
    }
    let values = floats(view)
        .ok_or_else(|| ParameterError::Kind { name: name.into(), found: format!("{:?}", view.dtype()) })?;
    finite(name, &values)?;
    Ok(values)
}

fn finite(name: &str, values: &[f32]) -> Result<(), ParameterError> {
    if values.iter().all(|value| value.is_finite()) {
        Ok(())
    } else {
        Err(ParameterError::NotFinite(name.into()))
    }
}

/// The numbers of a tensor of F32, F16 or BF16; None for any other kind.
fn floats(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = view.data();
    let pairs = || bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    match view.dtype() {
        Dtype::F32 => {
            Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
        }
        Dtype::F16 => Some(pairs().map(|b| f16::from_le_bytes(b).to_f32()).collect()),
        Dtype::BF16 => Some(pairs().map(|b| bf16::from_le_bytes(b).to_f32()).collect()),
        _ => None,
    }
}
