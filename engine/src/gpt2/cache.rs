//! Keys and values of one request in one hop.

use protocol::spec::{ModelSpec, Part};

use crate::{cpu, device::Device, gpu};

/// Keys and values of the tokens that one request has sent through one hop, so that its next tokens need no pass
/// over them. Made by [`super::Stage::open_cache`], used by [`super::Stage::decode`].
pub struct Cache {
    shape: Shape,
    /// Most tokens it can hold.
    positions: usize,
    /// Tokens in it.
    len: usize,
    pub(super) layers: Layers,
}

/// What a hop and its caches must have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    layers: usize,
    width: usize,
    heads: usize,
}

impl Shape {
    fn new(model: &ModelSpec, part: &Part) -> Shape {
        Shape {
            layers: part.end_layer.saturating_sub(part.first_layer) as usize,
            width: model.width as usize,
            heads: model.heads as usize,
        }
    }
}

/// One entry for each layer of the hop.
pub(super) enum Layers {
    Cpu(Vec<cpu::cached::LayerCache>),
    Burn(Vec<gpu::cached::LayerCache>),
}

impl Cache {
    /// An empty cache for `positions` tokens through `part`.
    pub(super) fn new(model: &ModelSpec, part: &Part, positions: usize, device: &Device) -> Cache {
        let shape = Shape::new(model, part);
        let layers = match device {
            Device::Cpu => {
                let layer = |_| cpu::cached::LayerCache::new(positions, shape.width);
                Layers::Cpu((0..shape.layers).map(layer).collect())
            }
            Device::Burn(_) => Layers::Burn(vec![gpu::cached::LayerCache::default(); shape.layers]),
        };
        Cache { shape, positions, len: 0, layers }
    }

    /// Most bytes that a cache for `positions` tokens takes: two f32 for each layer, token and feature. On
    /// [`Device::Cpu`] it takes them at once, elsewhere as it fills.
    pub fn bytes(model: &ModelSpec, part: &Part, positions: usize) -> u64 {
        let Shape { layers, width, .. } = Shape::new(model, part);
        2 * (layers * width) as u64 * positions as u64 * size_of::<f32>() as u64
    }

    /// Tokens in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token is in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most tokens it can hold.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Forgets all but the first `len` tokens, as after drafts that were wrong; no more than there are.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Whether it was made for this hop.
    pub(super) fn fits(&self, model: &ModelSpec, part: &Part, device: &Device) -> bool {
        let kind = matches!(
            (&self.layers, device),
            (Layers::Cpu(_), Device::Cpu) | (Layers::Burn(_), Device::Burn(_))
        );
        kind && self.shape == Shape::new(model, part)
    }

    /// Counts tokens whose keys and values every layer now has.
    pub(super) fn grow(&mut self, tokens: usize) {
        self.len += tokens;
    }
}
