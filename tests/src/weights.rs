//! Checkpoints, read and compared.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, ensure};
use safetensors::{Dtype, SafeTensors};

#[derive(Debug, Clone, PartialEq)]
pub struct Weights(BTreeMap<String, (Vec<usize>, Vec<f32>)>);

impl Weights {
    pub fn load(file: &Path) -> Result<Self> {
        let bytes = fs::read(file).with_context(|| format!("no checkpoint at {}", file.display()))?;
        let tensors = SafeTensors::deserialize(&bytes)?.tensors().into_iter().map(|(name, tensor)| {
            ensure!(tensor.dtype() == Dtype::F32, "{name} is {:?}, not f32", tensor.dtype());
            let values = tensor.data().chunks_exact(4);
            let values =
                values.map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect();
            Ok((name, (tensor.shape().to_vec(), values)))
        });
        Ok(Self(tensors.collect::<Result<_>>()?))
    }

    /// The largest difference between two values at the same place.
    ///
    /// # Errors
    /// When names or shapes differ, or a value is not finite.
    pub fn largest_difference(&self, other: &Self) -> Result<f32> {
        let names = |weights: &Self| weights.0.keys().cloned().collect::<Vec<_>>();
        ensure!(!self.0.is_empty(), "the checkpoint is empty");
        ensure!(names(self) == names(other), "other tensors: {:?} and {:?}", names(self), names(other));
        let mut largest = 0.0_f32;
        for ((name, (shape, ours)), (other_shape, theirs)) in self.0.iter().zip(other.0.values()) {
            ensure!(shape == other_shape, "{name}: shapes {shape:?} and {other_shape:?}");
            for (ours, theirs) in ours.iter().zip(theirs) {
                let difference = (ours - theirs).abs();
                ensure!(difference.is_finite(), "{name} holds {ours} and {theirs}");
                largest = largest.max(difference);
            }
        }
        Ok(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(values: &[f32]) -> Weights {
        Weights(BTreeMap::from([("w".to_owned(), (vec![values.len()], values.to_vec()))]))
    }

    #[test]
    fn compares_value_by_value() {
        let ours = weights(&[1.0, 2.0]);
        assert_eq!(ours.largest_difference(&weights(&[1.0, 2.5])).unwrap(), 0.5);
        assert!(ours.largest_difference(&weights(&[1.0])).is_err());
        assert!(ours.largest_difference(&weights(&[1.0, f32::NAN])).is_err());
    }
}
