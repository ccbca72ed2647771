//! Names, shapes and initial values of the parameters of block mode.
//!
//! `embed.weight` is shared by all blocks; block b has `blocks.{b}.<name>`. Layers are those of GPT-2, with
//! matrices [inputs, outputs]; `noise_in`, `time.0` and `time.2` are [outputs, inputs].

use protocol::spec::ModelSpec;

use crate::{
    gpt2::shapes::{self, LAYER_SUFFIXES, LAYER_TENSORS},
    init::Start,
    parameters::ParameterShape,
};

/// The table E [V, d], shared by all blocks.
pub const TABLE: &str = "embed.weight";

/// Length of the time features: as many cosines as sines.
pub const TIME_FEATURES: usize = 256;

/// Where a block's parameters lie in a replica's set, after the table at 0.
pub(crate) mod index {
    use super::LAYER_TENSORS;

    pub(crate) const TABLE: usize = 0;
    pub(crate) const NOISE_IN: usize = 1;
    pub(crate) const POSITIONS: usize = 2;
    pub(crate) const TIME_0: usize = 3;
    pub(crate) const TIME_2: usize = 5;
    pub(crate) const LAYERS: usize = 7;

    /// Final norm's weight, its bias and the scale of the logits come after the layers.
    pub(crate) fn final_norm(layers: usize) -> usize {
        LAYERS + LAYER_TENSORS * layers
    }

    pub(crate) fn logit_scale(layers: usize) -> usize {
        final_norm(layers) + 2
    }
}

/// The shared table.
pub fn table(model: &ModelSpec) -> ParameterShape {
    let shape = vec![model.vocabulary as usize, model.width as usize];
    ParameterShape { name: TABLE.into(), shape, start: Start::Normal(0.02) }
}

/// What block `block` of `layers` layers has of its own, in order.
///
/// Start: matrices N(0, 0.02), `noise_in` N(0, 0.3 / sqrt(d)), biases 0, layer norms 1 and 0, `logit_scale`
/// sqrt(512 / d).
pub fn of_block(model: &ModelSpec, layers: u32, block: u32) -> Vec<ParameterShape> {
    let d = model.width as usize;
    let width = f64::from(model.width);
    let matrix = Start::Normal(0.02);
    let own = |name: &str, shape: Vec<usize>, start: Start| ParameterShape {
        name: format!("blocks.{block}.{name}"),
        shape,
        start,
    };
    let mut all = vec![
        own("noise_in.weight", vec![d, d], Start::Normal(0.3 / libm::sqrt(width))),
        own("positions.weight", vec![model.positions as usize, d], matrix),
        own("time.0.weight", vec![d, TIME_FEATURES], matrix),
        own("time.0.bias", vec![d], Start::Zeros),
        own("time.2.weight", vec![d, d], matrix),
        own("time.2.bias", vec![d], Start::Zeros),
    ];
    for layer in 0..layers {
        for (suffix, shape) in LAYER_SUFFIXES.iter().zip(shapes::layer(model, layer)) {
            let start = if let Start::Normal(_) = shape.start { matrix } else { shape.start };
            all.push(own(&format!("layers.{layer}.{suffix}"), shape.shape, start));
        }
    }
    all.push(own("ln_f.weight", vec![d], Start::Ones));
    all.push(own("ln_f.bias", vec![d], Start::Zeros));
    all.push(own("logit_scale", vec![1], Start::Constant(libm::sqrt(512.0 / width))));
    all
}

/// What a worker at `block` trains: the table, then the block's own.
pub fn of_replica(model: &ModelSpec, layers: u32, block: u32) -> Vec<ParameterShape> {
    let mut all = vec![table(model)];
    all.extend(of_block(model, layers, block));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::fixtures::run;

    #[test]
    fn indices_point_at_the_parameters_they_name() {
        let model = run().model;
        for layers in [1, 3] {
            let all = of_replica(&model, layers, 2);
            let name = |index: usize| all[index].name.as_str();
            assert_eq!(name(index::TABLE), "embed.weight");
            assert_eq!(name(index::NOISE_IN), "blocks.2.noise_in.weight");
            assert_eq!(name(index::POSITIONS), "blocks.2.positions.weight");
            assert_eq!(name(index::TIME_0), "blocks.2.time.0.weight");
            assert_eq!(name(index::TIME_2), "blocks.2.time.2.weight");
            assert_eq!(name(index::LAYERS), "blocks.2.layers.0.ln_1.weight");
            assert_eq!(name(index::final_norm(layers as usize)), "blocks.2.ln_f.weight");
            assert_eq!(name(index::logit_scale(layers as usize)), "blocks.2.logit_scale");
            assert_eq!(all.len(), index::logit_scale(layers as usize) + 1);
        }
    }
}
