//! A part of the model on the processor.

use super::{Indices, Source};
use crate::{
    cpu::{
        cached::{self, LayerCache, Slot},
        embedding, head, layer,
    },
    gpt2::shapes::LAYER_TENSORS,
    parameters::CpuParameter,
    sizes::Sizes,
};

/// What a part's backward pass needs.
pub(crate) enum Saved {
    /// Everything.
    Activations { tokens: Option<Vec<u32>>, layers: Vec<layer::Saved> },
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
) -> (Vec<f32>, Saved) {
    if recompute {
        let (hidden, _) = forward(input.clone(), parameters, indices, sizes, false);
        return (hidden, Saved::Input(input));
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
        let (next, saved) = layer::forward(hidden, &parameters[first..first + LAYER_TENSORS], sizes);
        hidden = next;
        layers.push(saved);
    }
    (hidden, Saved::Activations { tokens, layers })
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
        hidden = layer::forward(hidden, &parameters[first..first + LAYER_TENSORS], sizes).0;
    }
    hidden
}

/// New tokens of one request: their rows in the batch, the tokens before them, and a cache for each layer.
pub(crate) struct Request<'a> {
    pub rows: usize,
    pub past: usize,
    pub layers: &'a mut [LayerCache],
}

/// Hidden states [R, d] of the requests' new tokens, in order, after the part's last layer.
pub(crate) fn decode(
    input: Source,
    parameters: &[CpuParameter],
    indices: &Indices,
    [d, heads]: [usize; 2],
    requests: &mut [Request<'_>],
) -> Vec<f32> {
    let mut hidden = match input {
        Source::Tokens(tokens) => {
            let [table, positions] = indices.embedding;
            let places: Vec<usize> =
                requests.iter().flat_map(|request| request.past..request.past + request.rows).collect();
            embedding::at(&tokens, |row| places[row], &parameters[table], &parameters[positions], d)
        }
        Source::Hidden(hidden) => hidden,
    };
    for (layer, &first) in indices.layers.iter().enumerate() {
        let mut slots: Vec<_> = requests
            .iter_mut()
            .map(|Request { rows, past, layers }| Slot {
                cache: &mut layers[layer],
                past: *past,
                rows: *rows,
            })
            .collect();
        hidden = cached::forward(&hidden, &parameters[first..first + LAYER_TENSORS], heads, &mut slots);
    }
    hidden
}

/// Gradient of the input, None when that is tokens; adds to the parameters' gradients.
pub(crate) fn backward(
    dy: Vec<f32>,
    saved: Saved,
    parameters: &mut [CpuParameter],
    indices: &Indices,
    sizes: Sizes,
) -> Option<Vec<f32>> {
    let (tokens, layers) = match saved {
        Saved::Activations { tokens, layers } => (tokens, layers),
        Saved::Input(input) => {
            let (_, saved) = forward(input, parameters, indices, sizes, false);
            return backward(dy, saved, parameters, indices, sizes);
        }
    };
    let mut gradient = dy;
    for (saved, &first) in layers.into_iter().zip(&indices.layers).rev() {
        gradient = layer::backward(gradient, saved, &mut parameters[first..first + LAYER_TENSORS], sizes);
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

/// Logits [R, V] of few rows.
pub(crate) fn thin_logits(
    hidden: &[f32],
    parameters: &[CpuParameter],
    indices: &Indices,
    width: usize,
) -> Vec<f32> {
    let [weight, _, table] = indices.head;
    head::thin_logits(hidden, &parameters[weight..weight + 2], &parameters[table], width)
}
