//! The weights of a whole model in block mode, on the processor: what the coordinator keeps and publishes.

use std::borrow::Cow;

use protocol::spec::{ModelSpec, RunSpec};
use safetensors::Dtype;

use super::{BlockError, layers_per_block, shapes};
use crate::parameters::{Entry, ParameterError, ParameterShape, values, write};

/// The shared table and each block's own parameters, flat.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    model: ModelSpec,
    layers_per_block: u32,
    /// E [V, d].
    pub table: Vec<f32>,
    /// By block, then in the order of [`shapes::of_block`].
    pub blocks: Vec<Vec<Vec<f32>>>,
}

impl Weights {
    /// The initial weights; a worker that draws from the same seed has the same bits.
    ///
    /// # Errors
    ///
    /// [`BlockError`] for a run that is not in block mode.
    pub fn draw(run: &RunSpec, seed: u64) -> Result<Weights, BlockError> {
        let (layers_per_block, count) = Weights::sizes(run)?;
        let draw = |shape: &ParameterShape| shape.draw(seed);
        let block = |b| shapes::of_block(&run.model, layers_per_block, b).iter().map(draw).collect();
        Ok(Weights {
            model: run.model.clone(),
            layers_per_block,
            table: draw(&shapes::table(&run.model)),
            blocks: (0..count).map(block).collect(),
        })
    }

    /// From files that together hold the table and all blocks.
    ///
    /// # Errors
    ///
    /// [`BlockError::Parameters`] naming what is missing, misshapen or not finite.
    pub fn import<B: AsRef<[u8]>>(run: &RunSpec, files: &[B]) -> Result<Weights, BlockError> {
        let (layers_per_block, count) = Weights::sizes(run)?;
        let mut table = values(&[shapes::table(&run.model)], files)?;
        let block = |b| values(&shapes::of_block(&run.model, layers_per_block, b), files);
        Ok(Weights {
            model: run.model.clone(),
            layers_per_block,
            table: table.pop().unwrap_or_default(),
            blocks: (0..count).map(block).collect::<Result<_, _>>()?,
        })
    }

    fn sizes(run: &RunSpec) -> Result<(u32, u32), BlockError> {
        let spec = run.blocks.as_ref().ok_or(BlockError::NotBlockMode)?;
        let layers = run.model.layers;
        let each =
            layers_per_block(&run.model, spec).ok_or(BlockError::Layers { layers, count: spec.count })?;
        Ok((each, spec.count))
    }

    /// Numbers per tensor of a replica's delta: the table, then the block's own.
    pub fn lengths(&self, block: u32) -> Vec<u32> {
        let all = shapes::of_replica(&self.model, self.layers_per_block, block);
        all.iter().map(|shape| shape.len() as u32).collect()
    }

    /// Numbers in the whole model.
    pub fn len(&self) -> u64 {
        let blocks = self.blocks.iter().flatten().map(Vec::len).sum::<usize>();
        (self.table.len() + blocks) as u64
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The table as a safetensors file; equal weights give equal bytes.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Format`].
    pub fn table_file(&self) -> Result<Vec<u8>, ParameterError> {
        file(vec![(shapes::table(&self.model), self.table.as_slice())])
    }

    /// What a block has of its own, as a safetensors file.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Format`]; [`ParameterError::Missing`] for a block that is not there.
    pub fn block_file(&self, block: u32) -> Result<Vec<u8>, ParameterError> {
        file(self.of_block(block)?)
    }

    /// The whole model as one safetensors file.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Format`].
    pub fn whole_file(&self) -> Result<Vec<u8>, ParameterError> {
        let mut all = vec![(shapes::table(&self.model), self.table.as_slice())];
        for block in 0..self.blocks.len() as u32 {
            all.extend(self.of_block(block)?);
        }
        file(all)
    }

    fn of_block(&self, block: u32) -> Result<Vec<(ParameterShape, &[f32])>, ParameterError> {
        let values = self
            .blocks
            .get(block as usize)
            .ok_or_else(|| ParameterError::Missing(format!("blocks.{block}")))?;
        let shapes = shapes::of_block(&self.model, self.layers_per_block, block);
        Ok(shapes.into_iter().zip(values.iter().map(Vec::as_slice)).collect())
    }
}

fn file(parts: Vec<(ParameterShape, &[f32])>) -> Result<Vec<u8>, ParameterError> {
    let entries = parts
        .into_iter()
        .map(|(shape, values)| {
            let bytes = Cow::Owned(values.iter().flat_map(|value| value.to_le_bytes()).collect());
            (shape.name, Entry { dtype: Dtype::F32, shape: shape.shape, bytes })
        })
        .collect();
    write(entries, ("format", "pt"))
}
