//! Names, shapes and initial values of GPT-2's parameters.
//!
//! Names and layouts are those of the state dict of Hugging Face's `GPT2LMHeadModel`: matrices of a layer
//! are `[inputs, outputs]` (`h @ W + b`), tables and the LM head are `[rows, d]`.

use protocol::spec::{Hop, ModelSpec, Part, RunSpec};

use crate::{init::Start, parameters::ParameterShape};

/// Token table [V, d]; with tied embeddings the LM head too.
pub const TOKEN_TABLE: &str = "transformer.wte.weight";
/// Position table [positions, d].
pub const POSITION_TABLE: &str = "transformer.wpe.weight";
/// Final layer norm's scale, of length d.
pub const FINAL_NORM_WEIGHT: &str = "transformer.ln_f.weight";
/// Final layer norm's shift, of length d.
pub const FINAL_NORM_BIAS: &str = "transformer.ln_f.bias";
/// LM head [V, d] of an untied model.
pub const LM_HEAD: &str = "lm_head.weight";

/// Tensors of one layer.
pub const LAYER_TENSORS: usize = 12;

/// Names of one layer's tensors after its prefix, in the order of [`layer`].
pub const LAYER_SUFFIXES: [&str; LAYER_TENSORS] = [
    "ln_1.weight",
    "ln_1.bias",
    "attn.c_attn.weight",
    "attn.c_attn.bias",
    "attn.c_proj.weight",
    "attn.c_proj.bias",
    "ln_2.weight",
    "ln_2.bias",
    "mlp.c_fc.weight",
    "mlp.c_fc.bias",
    "mlp.c_proj.weight",
    "mlp.c_proj.bias",
];

/// Bytes of the largest tensor in f32 that any part of the run needs: a table, a matrix of a layer, a micro-batch's
/// attention maps, hidden states of the MLP, or logits.
pub fn largest_buffer(run: &RunSpec) -> u64 {
    let model = &run.model;
    let [v, p, d, h] = [model.vocabulary, model.positions, model.width, model.heads].map(u64::from);
    let [n, t] = [run.sequences, run.context].map(u64::from);
    4 * [v.max(p) * d, 4 * d * d, n * h * t * t, n * t * 4 * d, n * t * v].into_iter().max().unwrap_or(0)
}

/// Full name of a parameter of layer `index`.
pub fn layer_name(index: u32, suffix: &str) -> String {
    format!("transformer.h.{index}.{suffix}")
}

/// Name of the LM head's table.
pub fn head_table(model: &ModelSpec) -> &'static str {
    if model.tie_embeddings { TOKEN_TABLE } else { LM_HEAD }
}

/// Parameters of the embedding.
pub fn embedding(model: &ModelSpec) -> Vec<ParameterShape> {
    let d = model.width as usize;
    vec![table(TOKEN_TABLE, model.vocabulary as usize, d), table(POSITION_TABLE, model.positions as usize, d)]
}

/// Parameters of layer `index`, in the order of [`LAYER_SUFFIXES`].
///
/// GPT-2's start: matrices N(0, 0.02), the two projections that end in the residual stream divided by
/// sqrt(2 * layers), biases 0, layer norms 1 and 0.
pub fn layer(model: &ModelSpec, index: u32) -> Vec<ParameterShape> {
    let d = model.width as usize;
    let matrix = Start::Normal(0.02);
    let residual = Start::Normal(0.02 / libm::sqrt(2.0 * f64::from(model.layers)));
    let rows: [(Vec<usize>, Start); LAYER_TENSORS] = [
        (vec![d], Start::Ones),
        (vec![d], Start::Zeros),
        (vec![d, 3 * d], matrix),
        (vec![3 * d], Start::Zeros),
        (vec![d, d], residual),
        (vec![d], Start::Zeros),
        (vec![d], Start::Ones),
        (vec![d], Start::Zeros),
        (vec![d, 4 * d], matrix),
        (vec![4 * d], Start::Zeros),
        (vec![4 * d, d], residual),
        (vec![d], Start::Zeros),
    ];
    LAYER_SUFFIXES
        .iter()
        .zip(rows)
        .map(|(suffix, (shape, start))| ParameterShape { name: layer_name(index, suffix), shape, start })
        .collect()
}

/// Parameters of final norm and LM head; with tied embeddings the head's is the token table.
pub fn head(model: &ModelSpec) -> Vec<ParameterShape> {
    let d = model.width as usize;
    vec![
        ParameterShape { name: FINAL_NORM_WEIGHT.into(), shape: vec![d], start: Start::Ones },
        ParameterShape { name: FINAL_NORM_BIAS.into(), shape: vec![d], start: Start::Zeros },
        table(head_table(model), model.vocabulary as usize, d),
    ]
}

/// Parameters of one part of the model.
pub fn of_part(model: &ModelSpec, part: &Part) -> Vec<ParameterShape> {
    let mut shapes = Vec::new();
    if part.embedding {
        shapes.extend(embedding(model));
    }
    for index in part.first_layer..part.end_layer {
        shapes.extend(layer(model, index));
    }
    if part.head {
        shapes.extend(head(model));
    }
    shapes
}

/// Parameters that a worker with these hops holds; a tied table counts once.
pub fn of_hops(model: &ModelSpec, hops: &[Hop]) -> Vec<ParameterShape> {
    let mut shapes: Vec<ParameterShape> = Vec::new();
    for shape in hops.iter().flat_map(|hop| of_part(model, &hop.part)) {
        if shapes.iter().all(|known| known.name != shape.name) {
            shapes.push(shape);
        }
    }
    shapes
}

/// Parameters of the whole model, in order.
pub fn of_model(model: &ModelSpec) -> Vec<ParameterShape> {
    of_hops(model, &[Hop { index: 0, part: model.whole() }])
}

fn table(name: &str, rows: usize, d: usize) -> ParameterShape {
    ParameterShape { name: name.into(), shape: vec![rows, d], start: Start::Normal(0.02) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpt2(tie_embeddings: bool) -> ModelSpec {
        ModelSpec { vocabulary: 50257, positions: 1024, width: 768, heads: 12, layers: 12, tie_embeddings }
    }

    fn count(model: &ModelSpec) -> usize {
        of_model(model).iter().map(ParameterShape::len).sum()
    }

    #[test]
    fn gpt2_has_its_published_number_of_parameters() {
        assert_eq!(count(&gpt2(true)), 124_439_808);
        assert_eq!(count(&gpt2(false)), 124_439_808 + 50257 * 768);
    }

    #[test]
    fn parts_together_are_the_whole() {
        let model = gpt2(false);
        let parts = [
            Part { embedding: true, first_layer: 0, end_layer: 5, head: false },
            Part { embedding: false, first_layer: 5, end_layer: 11, head: false },
            Part { embedding: false, first_layer: 11, end_layer: 12, head: true },
        ];
        let together: Vec<_> = parts.iter().flat_map(|part| of_part(&model, part)).collect();
        assert_eq!(together, of_model(&model));
    }

    #[test]
    fn only_matrices_and_tables_decay() {
        let decayed: Vec<_> = of_model(&gpt2(true)).into_iter().filter(|shape| shape.decays()).collect();
        assert_eq!(decayed.len(), 2 + 12 * 4);
        assert!(decayed.iter().all(|shape| shape.name.ends_with(".weight") && !shape.name.contains("ln_")));
    }
}
