//! A part of the model within a parameter set, and its passes on the processor and on burn's tensors.

pub(super) mod cpu;
pub(super) mod gpu;

use protocol::spec::{ModelSpec, Part};

use super::shapes::{self, LAYER_SUFFIXES};
use crate::parameters::{ParameterError, ParameterSet};

/// Where a part's parameters lie in the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Indices {
    /// Token table, position table; unused without an embedding.
    pub embedding: [usize; 2],
    /// The first of each layer's tensors, which lie in a row.
    pub layers: Vec<usize>,
    /// Final norm's weight and bias, head table; unused without a head.
    pub head: [usize; 3],
}

impl Indices {
    /// # Errors
    ///
    /// [`ParameterError::Missing`] with the first parameter that the set does not hold.
    pub(super) fn new(model: &ModelSpec, part: &Part, set: &ParameterSet) -> Result<Self, ParameterError> {
        let find = |name: &str| set.position(name).ok_or_else(|| ParameterError::Missing(name.into()));
        let mut indices = Indices { embedding: [0; 2], layers: Vec::new(), head: [0; 3] };
        if part.embedding {
            indices.embedding = [find(shapes::TOKEN_TABLE)?, find(shapes::POSITION_TABLE)?];
        }
        for layer in part.first_layer..part.end_layer {
            let mut first = 0;
            for (offset, suffix) in LAYER_SUFFIXES.iter().enumerate() {
                let name = shapes::layer_name(layer, suffix);
                let index = find(&name)?;
                if offset == 0 {
                    first = index;
                } else if index != first + offset {
                    return Err(ParameterError::Missing(name));
                }
            }
            indices.layers.push(first);
        }
        if part.head {
            let norm = [find(shapes::FINAL_NORM_WEIGHT)?, find(shapes::FINAL_NORM_BIAS)?];
            indices.head = [norm[0], norm[1], find(shapes::head_table(model))?];
        }
        Ok(indices)
    }
}

/// What enters a part.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Token ids [N, T], checked.
    Tokens(Vec<u32>),
    /// Hidden states [N, T, d].
    Hidden(Vec<f32>),
}
