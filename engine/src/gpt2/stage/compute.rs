//! One way to call the processor's kernels and burn's tensors.
//!
//! The parameters' store decides which. Everything else of a stage lies where they lie; a mixture is an error,
//! not a conversion.

use burn_tensor::{Tensor, TensorData};

use super::StageError;
use crate::{
    device::Device,
    gpt2::part::{Indices, Source, cpu, gpu},
    gpu::ids,
    parameters::{ParameterSet, Store, read},
    sizes::Sizes,
};

/// Hidden states or their gradient, [N, T, d], where they were computed.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and a tensor's handle is large")]
pub(super) enum Hidden {
    Cpu(Vec<f32>),
    Burn(Tensor<3>),
}

/// What a backward pass needs.
#[allow(clippy::large_enum_variant, reason = "there are few, and a tensor's handle is large")]
pub(super) enum Saved {
    Cpu(cpu::Saved),
    Burn(gpu::Saved),
}

/// One number, where it was computed.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and a tensor's handle is large")]
pub(super) enum Number {
    Cpu(f32),
    Burn(Tensor<1>),
}

impl Hidden {
    pub(super) fn new(values: Vec<f32>, sizes: Sizes, device: &Device) -> Self {
        match device {
            Device::Cpu => Hidden::Cpu(values),
            Device::Burn(device) => {
                let shape = [sizes.sequences, sizes.tokens, sizes.width];
                Hidden::Burn(Tensor::from_data(TensorData::new(values, shape), device))
            }
        }
    }

    /// Each sequence's last token only, [N, 1, d].
    pub(super) fn last_tokens(self, sizes: Sizes) -> Self {
        let Sizes { tokens, width, .. } = sizes;
        match self {
            Hidden::Cpu(values) => {
                let last = values.chunks_exact(tokens * width).flat_map(|rows| &rows[(tokens - 1) * width..]);
                Hidden::Cpu(last.copied().collect())
            }
            Hidden::Burn(tensor) => Hidden::Burn(tensor.narrow(1, tokens - 1, 1)),
        }
    }

    pub(super) async fn read(self) -> Result<Vec<f32>, StageError> {
        match self {
            Hidden::Cpu(values) => Ok(values),
            Hidden::Burn(tensor) => read(tensor).await.map_err(StageError::Device),
        }
    }
}

impl Number {
    pub(super) async fn read(self) -> Result<f32, StageError> {
        match self {
            Number::Cpu(value) => Ok(value),
            Number::Burn(tensor) => {
                let values = read(tensor).await.map_err(StageError::Device)?;
                values.first().copied().ok_or_else(|| StageError::Device("it gave no number".into()))
            }
        }
    }
}

/// One micro-batch through one part.
pub(super) struct PartPass<'a> {
    pub indices: &'a Indices,
    pub sizes: Sizes,
    pub device: &'a Device,
}

impl PartPass<'_> {
    /// Hidden states after the part's last layer; nothing is saved.
    pub(super) fn infer(&self, source: Source, set: &ParameterSet) -> Result<Hidden, StageError> {
        match (set.store(), self.device) {
            (Store::Cpu(parameters), Device::Cpu) => {
                Ok(Hidden::Cpu(cpu::infer(source, parameters, self.indices, self.sizes)))
            }
            (Store::Burn(parameters), Device::Burn(device)) => {
                let input = gpu::Input::new(source, self.sizes, device);
                Ok(Hidden::Burn(gpu::infer(input, parameters, self.indices, self.sizes)))
            }
            _ => Err(StageError::Mixed),
        }
    }

    /// Hidden states after the part's last layer, for training.
    pub(super) fn forward(
        &self,
        source: Source,
        set: &ParameterSet,
        recompute: bool,
    ) -> Result<(Hidden, Saved), StageError> {
        match (set.store(), self.device) {
            (Store::Cpu(parameters), Device::Cpu) => {
                let (hidden, saved) = cpu::forward(source, parameters, self.indices, self.sizes, recompute);
                Ok((Hidden::Cpu(hidden), Saved::Cpu(saved)))
            }
            (Store::Burn(parameters), Device::Burn(device)) => {
                let input = gpu::Input::new(source, self.sizes, device);
                let (hidden, saved) = gpu::forward(input, parameters, self.indices, self.sizes, recompute);
                Ok((Hidden::Burn(hidden), Saved::Burn(saved)))
            }
            _ => Err(StageError::Mixed),
        }
    }

    /// Gradient of the input, None when that is tokens; adds to the parameters' gradients.
    pub(super) fn backward(
        &self,
        dy: Hidden,
        saved: Saved,
        set: &mut ParameterSet,
    ) -> Result<Option<Hidden>, StageError> {
        match (set.store_mut(), saved, dy) {
            (Store::Cpu(parameters), Saved::Cpu(saved), Hidden::Cpu(dy)) => {
                let dx = cpu::backward(dy, saved, parameters, self.indices, self.sizes);
                Ok(dx.map(Hidden::Cpu))
            }
            (Store::Burn(parameters), Saved::Burn(saved), Hidden::Burn(dy)) => {
                let dx = gpu::backward(dy, saved, parameters, self.indices, self.sizes);
                Ok(dx.map(Hidden::Burn))
            }
            _ => Err(StageError::Mixed),
        }
    }

    /// Mean cross-entropy of the hidden states after the last layer and, in training, the gradient of
    /// `scale * mean` for them; adds to the head's gradients.
    pub(super) fn loss(
        &self,
        hidden: Hidden,
        targets: &[u32],
        training: Option<f32>,
        set: &mut ParameterSet,
    ) -> Result<(Number, Option<Hidden>), StageError> {
        match (set.store_mut(), self.device, hidden) {
            (Store::Cpu(parameters), Device::Cpu, Hidden::Cpu(hidden)) => {
                let (mean, gradient) =
                    cpu::loss(&hidden, targets, training, parameters, self.indices, self.sizes);
                Ok((Number::Cpu(mean), gradient.map(Hidden::Cpu)))
            }
            (Store::Burn(parameters), Device::Burn(device), Hidden::Burn(hidden)) => {
                let targets = ids(targets, [targets.len()], device);
                let (mean, gradient) = gpu::loss(hidden, targets, training, parameters, self.indices);
                Ok((Number::Burn(mean), gradient.map(Hidden::Burn)))
            }
            _ => Err(StageError::Mixed),
        }
    }

    /// Logits [R, V] of the hidden states after the last layer.
    pub(super) async fn logits(&self, hidden: Hidden, set: &ParameterSet) -> Result<Vec<f32>, StageError> {
        match (set.store(), hidden) {
            (Store::Cpu(parameters), Hidden::Cpu(hidden)) => {
                Ok(cpu::logits(&hidden, parameters, self.indices, self.sizes.width))
            }
            (Store::Burn(parameters), Hidden::Burn(hidden)) => {
                let logits = gpu::logits(hidden, parameters, self.indices);
                read(logits).await.map_err(StageError::Device)
            }
            _ => Err(StageError::Mixed),
        }
    }
}
