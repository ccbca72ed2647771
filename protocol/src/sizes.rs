//! How many parameters a GPT-2 of pipeline mode and its parts have, and what a snapshot takes of each.

use crate::spec::{ModelSpec, Moments, Part};

/// Counts saturate: sizes that no program could hold come from whoever asks.
impl ModelSpec {
    /// Parameters of one transformer layer, `12 d^2 + 13 d`: two layer norms, attention (3 d and d) and the MLP (4 d and
    /// back), with biases.
    pub fn layer_parameters(&self) -> u64 {
        let d = u64::from(self.width);
        (12 * d).saturating_add(13).saturating_mul(d)
    }

    /// Parameters of the token and position tables.
    pub fn embedding_parameters(&self) -> u64 {
        (u64::from(self.vocabulary) + u64::from(self.positions)).saturating_mul(self.width.into())
    }

    /// Parameters of the final norm and the LM head. A tied head has no table of its own.
    pub fn head_parameters(&self) -> u64 {
        let rows = if self.tie_embeddings { 0 } else { u64::from(self.vocabulary) };
        (rows + 2).saturating_mul(self.width.into())
    }

    /// Parameters of a part.
    pub fn part_parameters(&self, part: &Part) -> u64 {
        let layers = u64::from(part.end_layer.saturating_sub(part.first_layer));
        let if_held = |held: bool, parameters: u64| if held { parameters } else { 0 };
        self.layer_parameters()
            .saturating_mul(layers)
            .saturating_add(if_held(part.embedding, self.embedding_parameters()))
            .saturating_add(if_held(part.head, self.head_parameters()))
    }

    /// The whole model as one part.
    pub fn whole(&self) -> Part {
        Part { embedding: true, first_layer: 0, end_layer: self.layers, head: true }
    }

    /// Parameters of the whole model.
    pub fn parameters(&self) -> u64 {
        self.part_parameters(&self.whole())
    }
}

impl Moments {
    /// Bytes of a parameter in a snapshot: the weight in f32, and AdamW's two moments as far as they are kept.
    pub const fn snapshot_bytes(self) -> u64 {
        match self {
            Moments::Full => 12,
            Moments::F16 => 8,
            Moments::None => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpt2(tie_embeddings: bool) -> ModelSpec {
        ModelSpec { vocabulary: 50_257, positions: 1024, width: 768, heads: 12, layers: 12, tie_embeddings }
    }

    #[test]
    fn parts_add_up_to_gpt2() {
        assert_eq!(gpt2(true).parameters(), 124_439_808);
        let model = gpt2(false);
        let halves = [
            Part { embedding: true, first_layer: 0, end_layer: 5, head: false },
            Part { embedding: false, first_layer: 5, end_layer: 12, head: true },
        ];
        let sum: u64 = halves.iter().map(|part| model.part_parameters(part)).sum();
        assert_eq!(sum, 124_439_808 + 50_257 * 768);
    }

    #[test]
    fn sizes_that_cannot_be_saturate() {
        let model = ModelSpec { width: u32::MAX, layers: u32::MAX, ..gpt2(false) };
        assert_eq!(model.parameters(), u64::MAX);
    }
}
