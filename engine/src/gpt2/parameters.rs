//! The parameters of a part of GPT-2: drawn, or taken from files.

use protocol::spec::{Hop, ModelSpec};

use super::shapes;
use crate::{
    device::Device,
    parameters::{ParameterError, ParameterSet, ParameterShape},
};

impl ParameterSet {
    /// Draws the initial weights of what `hops` hold. The same seed gives the same bits on every device and
    /// under every partition.
    pub fn draw(model: &ModelSpec, hops: &[Hop], seed: u64, device: &Device) -> ParameterSet {
        ParameterSet::draw_shapes(shapes::of_hops(model, hops), seed, device)
    }

    /// Small numbers made fast, for benchmarks: drawing a large table costs more than timing it.
    pub(crate) fn cheap(model: &ModelSpec, hops: &[Hop], device: &Device) -> ParameterSet {
        let shapes = shapes::of_hops(model, hops);
        let value =
            |shape: &ParameterShape| (0..shape.len()).map(|i| (i % 97) as f32 * 4e-4 - 0.02).collect();
        let values = shapes.iter().map(value).collect();
        ParameterSet::untrained(shapes, values, device)
    }

    /// Takes what `hops` need from safetensors files that together hold at least that: parts of a snapshot,
    /// or a checkpoint with Hugging Face's names, with or without the prefix `transformer.`.
    ///
    /// Moments are taken if the files have them for every parameter needed; AdamW starts afresh if they have
    /// them for none.
    ///
    /// # Errors
    ///
    /// [`ParameterError`] naming the tensor that is missing, has another shape or is not made of floats.
    pub fn import<B: AsRef<[u8]>>(
        model: &ModelSpec,
        hops: &[Hop],
        files: &[B],
        device: &Device,
    ) -> Result<ParameterSet, ParameterError> {
        ParameterSet::import_shapes(shapes::of_hops(model, hops), files, device)
    }
}
