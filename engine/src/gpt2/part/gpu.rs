//! A part of the model on a device of burn.

use burn_tensor::{Device, Gradients, Int, Tensor, TensorData};

use super::{Indices, Source};
use crate::{
    gpt2::shapes::LAYER_TENSORS,
    gpu::{cached, embedding, head, ids, layer, leaf},
    parameters::BurnParameter,
    sizes::Sizes,
};

/// What a part's backward pass needs.
#[allow(clippy::large_enum_variant, reason = "there are few, and a tensor's handle is large")]
pub(crate) enum Saved {
    /// The graph, through its ends.
    Graph(Graph),
    /// The input, to compute the rest again.
    Input(Input),
}

/// A forward pass under autodiff.
pub(crate) struct Graph {
    /// None when tokens came in.
    input: Option<Tensor<3>>,
    output: Tensor<3>,
    /// Position in the parameter set, and the leaf that stands for it.
    leaves: Vec<(usize, Tensor<1>)>,
}

/// What enters a part, on the device.
#[derive(Clone)]
pub(crate) enum Input {
    Tokens(Tensor<2, Int>),
    Hidden(Tensor<3>),
}

impl Input {
    pub(crate) fn new(source: Source, sizes: Sizes, device: &Device) -> Self {
        let Sizes { sequences: n, tokens: t, width: d, .. } = sizes;
        match source {
            Source::Tokens(tokens) => Input::Tokens(ids(&tokens, [n, t], device)),
            Source::Hidden(hidden) => {
                Input::Hidden(Tensor::from_data(TensorData::new(hidden, [n, t, d]), device))
            }
        }
    }
}

/// Hidden states [N, T, d] after the part's last layer, for training.
pub(crate) fn forward(
    input: Input,
    parameters: &[BurnParameter],
    indices: &Indices,
    sizes: Sizes,
    recompute: bool,
) -> (Tensor<3>, Saved) {
    if recompute {
        return (infer(input.clone(), parameters, indices, sizes), Saved::Input(input));
    }
    let graph = graph(input, parameters, indices, sizes);
    (graph.output.clone().inner(), Saved::Graph(graph))
}

/// The same, keeping nothing.
pub(crate) fn infer(
    input: Input,
    parameters: &[BurnParameter],
    indices: &Indices,
    sizes: Sizes,
) -> Tensor<3> {
    let weights: Vec<_> = used(&input, indices).map(|index| parameters[index].value()).collect();
    run(input, &weights, sizes)
}

/// New tokens of one request: their rows in the batch, the tokens before them, and a cache for each layer.
pub(crate) struct Request<'a> {
    pub rows: usize,
    pub past: usize,
    pub layers: &'a mut [cached::LayerCache],
}

/// Hidden states [1, R, d] of the requests' new tokens, in order, after the part's last layer.
pub(crate) fn decode(
    input: Input,
    parameters: &[BurnParameter],
    indices: &Indices,
    [d, heads]: [usize; 2],
    requests: &mut [Request<'_>],
) -> Tensor<3> {
    let mut hidden = match input {
        Input::Tokens(tokens) => {
            let device = tokens.device();
            let places: Vec<u32> = requests
                .iter()
                .flat_map(|request| request.past..request.past + request.rows)
                .map(|place| place as u32)
                .collect();
            let places = ids(&places, [1, places.len()], &device);
            let [table, positions] = indices.embedding.map(|index| parameters[index].value());
            embedding::at(tokens, places, table, positions, d)
        }
        Input::Hidden(hidden) => hidden,
    };
    for (layer, &first) in indices.layers.iter().enumerate() {
        let weights: Vec<_> = (first..first + LAYER_TENSORS).map(|index| parameters[index].value()).collect();
        let mut slots: Vec<_> = requests
            .iter_mut()
            .map(|Request { rows, past, layers }| cached::Slot {
                cache: &mut layers[layer],
                past: *past,
                rows: *rows,
            })
            .collect();
        hidden = cached::forward(hidden, &weights, heads, &mut slots);
    }
    hidden
}

/// Gradient of the input, None when that is tokens; adds to the parameters' gradients.
pub(crate) fn backward(
    dy: Tensor<3>,
    saved: Saved,
    parameters: &mut [BurnParameter],
    indices: &Indices,
    sizes: Sizes,
) -> Option<Tensor<3>> {
    let graph = match saved {
        Saved::Graph(graph) => graph,
        Saved::Input(input) => graph(input, parameters, indices, sizes),
    };
    let mut gradients = pull_back(&graph.output, dy)?;
    for (index, leaf) in &graph.leaves {
        if let Some(gradient) = leaf.grad_remove(&mut gradients) {
            parameters[*index].accumulate(gradient);
        }
    }
    graph.input.and_then(|input| input.grad_remove(&mut gradients))
}

/// Mean cross-entropy [1] in nats and, in training, the gradient of `scale * mean` for the hidden states.
pub(crate) fn loss(
    hidden: Tensor<3>,
    targets: Tensor<1, Int>,
    training: Option<f32>,
    parameters: &mut [BurnParameter],
    indices: &Indices,
) -> (Tensor<1>, Option<Tensor<3>>) {
    let rows = targets.dims()[0] as f64;
    let [weight, bias, table] = indices.head;
    if training.is_none() {
        let normed = head::norm(hidden, parameters[weight].value(), parameters[bias].value());
        let result = head::cross_entropy(normed, parameters[table].value(), targets, None);
        return (result.sum.div_scalar(rows), None);
    }
    let hidden = hidden.autodiff().require_grad();
    let (weight_leaf, bias_leaf) = (leaf(&parameters[weight]), leaf(&parameters[bias]));
    let normed = head::norm(hidden.clone(), weight_leaf.clone(), bias_leaf.clone());
    let result = head::cross_entropy(normed.clone().inner(), parameters[table].value(), targets, training);
    let mean = result.sum.div_scalar(rows);
    let Some((dnormed, dtable)) = result.gradients else { return (mean, None) };
    parameters[table].accumulate(dtable);
    let Some(mut gradients) = pull_back(&normed, dnormed) else { return (mean, None) };
    for (index, leaf) in [(weight, weight_leaf), (bias, bias_leaf)] {
        if let Some(gradient) = leaf.grad_remove(&mut gradients) {
            parameters[index].accumulate(gradient);
        }
    }
    (mean, hidden.grad_remove(&mut gradients))
}

/// Logits [R, V].
pub(crate) fn logits(hidden: Tensor<3>, parameters: &[BurnParameter], indices: &Indices) -> Tensor<2> {
    let [weight, bias, table] = indices.head;
    let normed = head::norm(hidden, parameters[weight].value(), parameters[bias].value());
    head::logits(normed, parameters[table].value())
}

/// Gradients of everything before `output`, whose own gradient is `dy`: those of sum(output * dy).
/// None if nothing before `output` has a gradient, as in a part without layers and embedding.
fn pull_back<const D: usize>(output: &Tensor<D>, dy: Tensor<D>) -> Option<Gradients> {
    output.is_tracked().then(|| (output.clone() * dy.autodiff()).sum().backward())
}

fn graph(input: Input, parameters: &[BurnParameter], indices: &Indices, sizes: Sizes) -> Graph {
    let leaves: Vec<_> = used(&input, indices).map(|index| (index, leaf(&parameters[index]))).collect();
    let weights: Vec<_> = leaves.iter().map(|(_, leaf)| leaf.clone()).collect();
    let (input, saved) = match input {
        Input::Tokens(tokens) => (Input::Tokens(tokens), None),
        Input::Hidden(hidden) => {
            let hidden = hidden.autodiff().require_grad();
            (Input::Hidden(hidden.clone()), Some(hidden))
        }
    };
    Graph { input: saved, output: run(input, &weights, sizes), leaves }
}

/// Positions of the parameters that [`run`] takes, in its order.
fn used<'a>(input: &Input, indices: &'a Indices) -> impl Iterator<Item = usize> + use<'a> {
    let embedding: &[usize] = match input {
        Input::Tokens(_) => &indices.embedding,
        Input::Hidden(_) => &[],
    };
    let layers = indices.layers.iter().flat_map(|&first| first..first + LAYER_TENSORS);
    embedding.iter().copied().chain(layers)
}

fn run(input: Input, weights: &[Tensor<1>], sizes: Sizes) -> Tensor<3> {
    let (mut hidden, layers) = match input {
        Input::Tokens(ids) => {
            let hidden = embedding::forward(ids, weights[0].clone(), weights[1].clone(), sizes.width);
            (hidden, &weights[2..])
        }
        Input::Hidden(hidden) => (hidden, weights),
    };
    if layers.is_empty() {
        return hidden;
    }
    let mut mask = layer::causal_mask(sizes.tokens, &hidden.device());
    if hidden.is_autodiff() && !mask.is_autodiff() {
        mask = mask.autodiff();
    }
    for weights in layers.chunks_exact(LAYER_TENSORS) {
        hidden = layer::forward(hidden, weights, sizes.heads, mask.clone());
    }
    hidden
}
