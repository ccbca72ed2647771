//! A whole pipeline in one place: every worker's stage, and tensors handed from hop to hop.

use engine::{
    device::Device,
    gpt2::{HopInput, LossOutcome, Stage, StageError},
    parameters::{ParameterSet, Quantity},
};
use protocol::{
    message::Pass,
    spec::{Hop, RunSpec},
};

use super::{GoldenError, splits::Workers};

pub(super) struct Pipeline {
    stages: Vec<Stage>,
    /// Worker of each hop, in order, and the hop.
    hops: Vec<(usize, Hop)>,
}

impl Pipeline {
    /// Each worker takes its own share of `weights`, a safetensors file.
    pub(super) fn new(
        run: &RunSpec,
        workers: &Workers,
        weights: &[u8],
        device: &Device,
    ) -> Result<Self, GoldenError> {
        let mut hops = Vec::new();
        let mut stages = Vec::new();
        for (worker, own) in workers.iter().enumerate() {
            let parameters = ParameterSet::import(&run.model, own, &[weights], device)?;
            stages.push(
                Stage::new(run, own, device, parameters)
                    .map_err(|error| GoldenError::Stage { place: "building a stage".into(), error })?,
            );
            hops.extend(own.iter().map(|hop| (worker, hop.clone())));
        }
        hops.sort_by_key(|(_, hop)| hop.index);
        Ok(Pipeline { stages, hops })
    }

    pub(super) fn last(&self) -> usize {
        self.hops.len() - 1
    }

    /// Layers before what leaves hop `hop`.
    pub(super) fn layers_before_exit(&self, hop: usize) -> u32 {
        self.hops[hop].1.part.end_layer
    }

    /// Hidden states leaving each hop but the last.
    pub(super) async fn forward(
        &mut self,
        pass: Pass,
        tokens: &[u32],
        shape: [usize; 2],
    ) -> Result<Vec<Vec<f32>>, StageError> {
        let mut left: Vec<Vec<f32>> = Vec::new();
        for hop in 0..self.last() {
            let (worker, index) = (self.hops[hop].0, self.hops[hop].1.index);
            let stage = &mut self.stages[worker];
            left.push(match left.last() {
                None => stage.forward_tokens(index, pass, tokens, shape).await?,
                Some(hidden) => stage.forward_hidden(index, pass, hidden.clone(), shape).await?,
            });
        }
        Ok(left)
    }

    /// Loss of the last hop from what [`Pipeline::forward`] gave.
    pub(super) async fn loss(
        &mut self,
        pass: Pass,
        tokens: &[u32],
        left: &[Vec<f32>],
        targets: &[u32],
        shape: [usize; 2],
        scale: f32,
    ) -> Result<LossOutcome, StageError> {
        let (worker, hop) = &self.hops[self.last()];
        self.stages[*worker].loss(hop.index, pass, input(tokens, left), targets, shape, scale).await
    }

    /// Logits of the last hop.
    pub(super) async fn logits(
        &mut self,
        tokens: &[u32],
        left: &[Vec<f32>],
        shape: [usize; 2],
    ) -> Result<Vec<f32>, StageError> {
        let (worker, hop) = &self.hops[self.last()];
        self.stages[*worker].logits(hop.index, input(tokens, left), shape).await
    }

    /// Gradients of what left each hop but the last, first hop first, from that of the loss's hop.
    pub(super) async fn backward(
        &mut self,
        micro_batch: u32,
        gradient: Option<Vec<f32>>,
    ) -> Result<Vec<Vec<f32>>, StageError> {
        let mut gradients = Vec::new();
        let mut next = gradient;
        for hop in (0..self.last()).rev() {
            let Some(gradient) = next else { break };
            gradients.push(gradient.clone());
            let (worker, hop) = &self.hops[hop];
            next = self.stages[*worker].backward(hop.index, micro_batch, gradient).await?;
        }
        gradients.reverse();
        Ok(gradients)
    }

    /// Norm of all stages' gradients together.
    pub(super) async fn norm(&self) -> Result<f64, StageError> {
        let mut sum = 0.0;
        for stage in &self.stages {
            sum += stage.squared_norm().await?;
        }
        Ok(libm::sqrt(sum))
    }

    pub(super) async fn apply(&mut self, clip_scale: f64, learning_rate: f64) -> Result<(), StageError> {
        for stage in &mut self.stages {
            stage.apply(clip_scale, learning_rate).await?;
        }
        Ok(())
    }

    /// Micro-batches that some stage still holds.
    pub(super) fn in_flight(&self) -> usize {
        self.stages.iter().map(Stage::in_flight).sum()
    }

    /// Names of all parameters, each once.
    pub(super) fn names(&self) -> Vec<String> {
        let shapes = self.stages.iter().flat_map(|stage| stage.parameters().shapes());
        shapes.map(|shape| shape.name.clone()).collect()
    }

    /// A parameter's numbers.
    pub(super) async fn read(&self, name: &str, quantity: Quantity) -> Result<Vec<f32>, GoldenError> {
        for stage in &self.stages {
            let parameters = stage.parameters();
            if let Some(index) = parameters.position(name) {
                return Ok(parameters.read(index, quantity).await?.into_owned());
            }
        }
        Err(GoldenError::Missing(format!("`{name}`")))
    }
}

fn input<'a>(tokens: &'a [u32], left: &[Vec<f32>]) -> HopInput<'a> {
    match left.last() {
        None => HopInput::Tokens(tokens),
        Some(hidden) => HopInput::Hidden(hidden.clone()),
    }
}
