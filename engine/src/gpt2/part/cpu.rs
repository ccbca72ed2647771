//! A part of the model on the processor.

use super::{Indices, Source};
use crate::{
    cpu::{embedding, head, layer},
    parameters::CpuParameter,
    sizes::Sizes,
};

/// What a part's backward pass needs.
pub(crate) enum Kept {
    /// Everything.
    Activations { tokens: Option<Vec<u32>>, layers: Vec<layer::Kept> },
    /// The input, to compute the rest again.
    Input(Source),
}

/// Hidden states [R, d] after the part's last layer.
pub(crate) fn forward(
    input: Source,
    parameters: &[CpuParameter],
    indices: &Indices,
    sizes: Sizes,
    recompute: bool,
) -> (Vec<f32>, Kept) {
    if recompute {
        let (hidden, _) = forward(input.clone(), parameters, indices, sizes, false);
        return (hidden, Kept::Input(input));
    }
    let (mut hidden, tokens) = match input {
        Source::Tokens(tokens) => {
            let [table, positions] = indices.embedding;
            let hidden = embedding::forward(&tokens, &parameters[table], &parameters[positions], sizes);
            (hidden, Some(tokens))
        }
        Source::Hidden(hidden) => (hidden, None),
    };
    let mut layers = Vec::with_capacity(indices.layers.len());
    for &first in &indices.layers {
        let (next, kept) = layer::forward(hidden, &parameters[first..first + 12], sizes);
        hidden = next;
        layers.push(kept);
    }
    (hidden, Kept::Activations { tokens, layers })
}

/// The same, keeping nothing.
pub(crate) fn infer(input: Source, parameters: &[CpuParameter], indices: &Indices, sizes: Sizes) -> Vec<f32> {
    let mut hidden = match input {
        Source::Tokens(tokens) => {
            let [table, positions] = indices.embedding;
            embedding::forward(&tokens, &parameters[table], &parameters[positions], sizes)
        }
        Source::Hidden(hidden) => hidden,
    };
    for &first in &indices.layers {
        hidden = layer::forward(hidden, &parameters[first..first + 12], sizes).0;
    }
    hidden
}

/// Gradient of the input, None when that is tokens; adds to the parameters' gradients.
pub(crate) fn backward(
    dy: Vec<f32>,
    kept: Kept,
    parameters: &mut [CpuParameter],
    indices: &Indices,
    sizes: Sizes,
) -> Option<Vec<f32>> {
    let (tokens, layers) = match kept {
        Kept::Activations { tokens, layers } => (tokens, layers),
        Kept::Input(input) => {
            let (_, kept) = forward(input, parameters, indices, sizes, false);
            return backward(dy, kept, parameters, indices, sizes);
        }
    };
    let mut gradient = dy;
    for (kept, &first) in layers.into_iter().zip(&indices.layers).rev() {
        gradient = layer::backward(gradient, kept, &mut parameters[first..first + 12], sizes);
    }
    let Some(tokens) = tokens else { return Some(gradient) };
    let [table, positions] = indices.embedding;
    // The embedding's tables lie one after the other in every parameter set.
    let (before, after) = parameters.split_at_mut(positions);
    embedding::backward(&gradient, &tokens, &mut before[table], &mut after[0], sizes);
    None
}

/// Mean cross-entropy in nats and, in training, the gradient of `scale * mean` for the hidden states.
pub(crate) fn loss(
    hidden: &[f32],
    targets: &[u32],
    training: Option<f32>,
    parameters: &mut [CpuParameter],
    indices: &Indices,
    sizes: Sizes,
) -> (f32, Option<Vec<f32>>) {
    let [weight, _, table] = indices.head;
    // Tied, the table comes before the final norm; untied, after it.
    if table < weight {
        let (before, after) = parameters.split_at_mut(weight);
        head::loss(hidden, targets, training, &mut after[..2], &mut before[table], sizes)
    } else {
        let (before, after) = parameters.split_at_mut(table);
        head::loss(hidden, targets, training, &mut before[weight..weight + 2], &mut after[0], sizes)
    }
}

/// Logits [R, V].
pub(crate) fn logits(
    hidden: &[f32],
    parameters: &[CpuParameter],
    indices: &Indices,
    width: usize,
) -> Vec<f32> {
    let [weight, _, table] = indices.head;
    head::logits(hidden, &parameters[weight..weight + 2], &parameters[table], width)
}
