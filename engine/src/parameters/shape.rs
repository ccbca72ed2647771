//! Name, shape and start of a parameter.

use crate::init::Start;

/// One parameter of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterShape {
    /// The name in safetensors files.
    pub name: String,
    /// One or two dimensions.
    pub shape: Vec<usize>,
    /// Its values before training.
    pub start: Start,
}

impl ParameterShape {
    /// Numbers in the parameter.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it holds no number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether AdamW decays it: matrices and tables yes, biases and layer norms no.
    pub fn decays(&self) -> bool {
        self.shape.len() >= 2
    }

    /// The initial values, flat: they follow from the seed, the name and the start alone.
    pub fn draw(&self, seed: u64) -> Vec<f32> {
        self.start.draw(&self.name, self.len(), seed)
    }
}
