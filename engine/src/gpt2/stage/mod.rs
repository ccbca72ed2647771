//! What one worker holds and computes: one or two hops of the plan over one set of parameters.

mod compute;
mod decode;
mod error;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use protocol::{
    message::Pass,
    spec::{Hop, ModelSpec, Moments, OptimizerSpec, Part, RunSpec},
};

pub use decode::Decode;
pub use error::StageError;

use compute::{Hidden, PartPass, Saved};
pub(crate) use error::{check_length, check_model, check_tokens};

use super::part::{Indices, Source};
use crate::{device::Device, parameters::ParameterSet, sizes::Sizes};

/// What enters a hop.
#[derive(Debug, Clone)]
pub enum HopInput<'a> {
    /// Token ids [N, T], for the hop with the embedding.
    Tokens(&'a [u32]),
    /// Hidden states [N, T, d], for every other hop.
    Hidden(Vec<f32>),
}

/// What the hop with the head gives.
#[derive(Debug, Clone, PartialEq)]
pub struct LossOutcome {
    /// Mean cross-entropy of the micro-batch in nats, not scaled.
    pub loss: f32,
    /// Gradient of `scale * loss` with respect to the input [N, T, d]; None in validation, and for a hop
    /// that has the embedding too.
    pub input_gradient: Option<Vec<f32>>,
}

/// One worker's share of the model.
///
/// Shapes are `[N, T]`, sequences and tokens; hidden states are [N, T, d], row major. Gradients add up over
/// micro-batches until [`Stage::apply`]. With two hops over a tied table, the table gets both hops' gradients
/// and is decayed and updated once.
pub struct Stage {
    model: ModelSpec,
    /// None in a stage for inference.
    optimizer: Option<OptimizerSpec>,
    recompute: bool,
    device: Device,
    hops: Vec<HeldHop>,
    parameters: ParameterSet,
    /// By hop and micro-batch.
    saved: BTreeMap<(u32, u32), (Saved, Sizes)>,
}

struct HeldHop {
    index: u32,
    part: Part,
    indices: Indices,
}

impl Stage {
    /// A stage of `hops`, ascending, over `parameters`, which may hold more than the hops need and must be
    /// made for the same device.
    ///
    /// # Errors
    ///
    /// [`StageError::Parameters`] naming a parameter that is missing; [`StageError::WrongHop`] for a part that
    /// is empty, reaches beyond the model, or has a tied head without the table's embedding beside it.
    pub fn new(
        run: &RunSpec,
        hops: &[Hop],
        device: &Device,
        parameters: ParameterSet,
    ) -> Result<Stage, StageError> {
        let mut stage = Stage::for_inference(&run.model, hops, device, parameters)?;
        stage.optimizer = Some(run.optimizer.clone());
        stage.recompute = run.recompute;
        Ok(stage)
    }

    /// A stage that is not going to be trained.
    ///
    /// # Errors
    ///
    /// As for [`Stage::new`].
    pub fn for_inference(
        model: &ModelSpec,
        hops: &[Hop],
        device: &Device,
        parameters: ParameterSet,
    ) -> Result<Stage, StageError> {
        check_model(model)?;
        let embeds = hops.iter().any(|hop| hop.part.embedding);
        let mut held = Vec::new();
        for Hop { index, part } in hops {
            let wrong = |reason| Err(StageError::WrongHop { hop: *index, reason });
            if part.first_layer > part.end_layer || part.end_layer > model.layers {
                return wrong("has layers that the model does not have");
            }
            if part.first_layer == part.end_layer && !part.embedding && !part.head {
                return wrong("has nothing to compute");
            }
            if part.head && model.tie_embeddings && !embeds {
                return wrong("has the head of a tied model, but its token table is elsewhere");
            }
            let indices = Indices::new(model, part, &parameters)?;
            held.push(HeldHop { index: *index, part: part.clone(), indices });
        }
        Ok(Stage {
            model: model.clone(),
            optimizer: None,
            recompute: false,
            device: device.clone(),
            hops: held,
            parameters,
            saved: BTreeMap::new(),
        })
    }

    /// Hidden states [N, T, d] leaving a hop that has the embedding and no head. In training, what the
    /// backward pass needs is saved.
    ///
    /// # Errors
    ///
    /// [`StageError`]; nothing is saved then.
    pub async fn forward_tokens(
        &mut self,
        hop: u32,
        pass: Pass,
        tokens: &[u32],
        shape: [usize; 2],
    ) -> Result<Vec<f32>, StageError> {
        self.forward(hop, pass, HopInput::Tokens(tokens), shape).await
    }

    /// Hidden states [N, T, d] leaving a hop without embedding and head, from those that enter it. In
    /// training, what the backward pass needs is saved.
    ///
    /// # Errors
    ///
    /// [`StageError`]; nothing is saved then.
    pub async fn forward_hidden(
        &mut self,
        hop: u32,
        pass: Pass,
        hidden: Vec<f32>,
        shape: [usize; 2],
    ) -> Result<Vec<f32>, StageError> {
        self.forward(hop, pass, HopInput::Hidden(hidden), shape).await
    }

    async fn forward(
        &mut self,
        hop: u32,
        pass: Pass,
        input: HopInput<'_>,
        shape: [usize; 2],
    ) -> Result<Vec<f32>, StageError> {
        let (source, sizes) = self.enter(hop, input, shape)?;
        let held = held(&self.hops, hop)?;
        if held.part.head {
            return Err(StageError::WrongHop {
                hop,
                reason: "has the head: it gives a loss, no hidden states",
            });
        }
        let part = PartPass { indices: &held.indices, sizes, device: &self.device };
        let hidden = match pass {
            Pass::Validate { .. } => part.infer(source, &self.parameters)?,
            Pass::Train { micro_batch } => {
                if self.saved.contains_key(&(hop, micro_batch)) {
                    return Err(StageError::Repeated { hop, micro_batch });
                }
                let (hidden, saved) = part.forward(source, &self.parameters, self.recompute)?;
                self.saved.insert((hop, micro_batch), (saved, sizes));
                hidden
            }
        };
        hidden.read().await
    }

    /// The loss of the hop with the head, against `targets` [N, T], the ids that follow the input's. In
    /// training its backward pass runs at once, for `scale * loss`: scale is 1 / M, so that M micro-batches add
    /// up to the gradient of their mean.
    ///
    /// # Errors
    ///
    /// [`StageError::NotFinite`] for a loss of NaN or infinity; gradients may then be worthless, see
    /// [`Stage::discard`].
    pub async fn loss(
        &mut self,
        hop: u32,
        pass: Pass,
        input: HopInput<'_>,
        targets: &[u32],
        shape: [usize; 2],
        scale: f32,
    ) -> Result<LossOutcome, StageError> {
        let (source, sizes) = self.enter(hop, input, shape)?;
        check_tokens("a micro-batch's targets", targets, sizes.rows(), self.model.vocabulary)?;
        let held = held(&self.hops, hop)?;
        if !held.part.head {
            return Err(StageError::WrongHop { hop, reason: "has no head, so it gives no loss" });
        }
        let part = PartPass { indices: &held.indices, sizes, device: &self.device };
        let parameters = &mut self.parameters;
        let (loss, gradient) = match pass {
            Pass::Validate { .. } => {
                let hidden = part.infer(source, parameters)?;
                part.loss(hidden, targets, None, parameters)?
            }
            Pass::Train { .. } => {
                // Backward follows at once: there is nothing to save by computing again.
                let (hidden, saved) = part.forward(source, parameters, false)?;
                let (loss, dy) = part.loss(hidden, targets, Some(scale), parameters)?;
                let dx = match dy {
                    Some(dy) => part.backward(dy, saved, parameters)?,
                    None => None,
                };
                (loss, dx)
            }
        };
        let loss = loss.read().await?;
        let input_gradient = match gradient {
            Some(gradient) => Some(gradient.read().await?),
            None => None,
        };
        if loss.is_finite() {
            Ok(LossOutcome { loss, input_gradient })
        } else {
            Err(StageError::NotFinite { what: "the loss" })
        }
    }

    /// Backward pass of a micro-batch from the gradient [N, T, d] of what left the hop; gives the gradient
    /// [N, T, d] of what entered it, None for the hop with the embedding.
    ///
    /// # Errors
    ///
    /// [`StageError::NoForward`] without a forward pass before it; [`StageError::Length`], after which the
    /// backward pass can be tried again.
    pub async fn backward(
        &mut self,
        hop: u32,
        micro_batch: u32,
        gradient: Vec<f32>,
    ) -> Result<Option<Vec<f32>>, StageError> {
        let indices = &held(&self.hops, hop)?.indices;
        let missing = StageError::NoForward { hop, micro_batch };
        let Some((_, sizes)) = self.saved.get(&(hop, micro_batch)) else { return Err(missing) };
        check_length("a gradient", gradient.len(), sizes.rows() * sizes.width)?;
        let Some((saved, sizes)) = self.saved.remove(&(hop, micro_batch)) else { return Err(missing) };
        let part = PartPass { indices, sizes, device: &self.device };
        let dy = Hidden::new(gradient, sizes, &self.device);
        match part.backward(dy, saved, &mut self.parameters)? {
            Some(dx) => dx.read().await.map(Some),
            None => Ok(None),
        }
    }

    /// Logits [N, T, V] of a hop with the head.
    ///
    /// # Errors
    ///
    /// [`StageError`] as for [`Stage::loss`].
    pub async fn logits(
        &self,
        hop: u32,
        input: HopInput<'_>,
        shape: [usize; 2],
    ) -> Result<Vec<f32>, StageError> {
        self.logits_of(hop, input, shape, false).await
    }

    /// Logits [N, V] for the token after the last, of a hop with the head.
    ///
    /// # Errors
    ///
    /// [`StageError`] as for [`Stage::loss`].
    pub async fn next_logits(
        &self,
        hop: u32,
        input: HopInput<'_>,
        shape: [usize; 2],
    ) -> Result<Vec<f32>, StageError> {
        self.logits_of(hop, input, shape, true).await
    }

    async fn logits_of(
        &self,
        hop: u32,
        input: HopInput<'_>,
        shape: [usize; 2],
        last: bool,
    ) -> Result<Vec<f32>, StageError> {
        let (source, sizes) = self.enter(hop, input, shape)?;
        let held = held(&self.hops, hop)?;
        if !held.part.head {
            return Err(StageError::WrongHop { hop, reason: "has no head, so it gives no logits" });
        }
        let part = PartPass { indices: &held.indices, sizes, device: &self.device };
        let hidden = part.infer(source, &self.parameters)?;
        let hidden = if last { hidden.last_tokens(sizes) } else { hidden };
        part.logits(hidden, &self.parameters).await
    }

    /// Sum of squares of the accumulated gradients; 0 when there are none. Not finite if a gradient is not.
    ///
    /// # Errors
    ///
    /// [`StageError::Parameters`] when reading fails.
    pub async fn squared_norm(&self) -> Result<f64, StageError> {
        Ok(self.parameters.squared_norm().await?)
    }

    /// One AdamW update with the accumulated gradients times `clip_scale`, which are then cleared.
    ///
    /// # Errors
    ///
    /// [`StageError::Parameters`] when a parameter took part in no backward pass; nothing is updated.
    pub async fn apply(&mut self, clip_scale: f64, learning_rate: f64) -> Result<(), StageError> {
        let optimizer = self.optimizer.as_ref().ok_or(StageError::Inference)?;
        Ok(self.parameters.apply(clip_scale, learning_rate, optimizer)?)
    }

    /// Weights, and AdamW's state as far as `moments` says, as a safetensors file for [`ParameterSet::import`].
    ///
    /// # Errors
    ///
    /// [`StageError::Parameters`] when reading fails.
    pub async fn export(&self, moments: Moments) -> Result<Vec<u8>, StageError> {
        Ok(self.parameters.export(moments).await?)
    }

    /// Drops saved activations and accumulated gradients, as after a pause or a rollback.
    pub fn discard(&mut self) {
        self.saved.clear();
        self.parameters.clear_gradients();
    }

    /// Micro-batches between forward and backward, over all hops.
    pub fn in_flight(&self) -> usize {
        self.saved.len()
    }

    /// Optimizer steps the weights have seen.
    pub fn steps_done(&self) -> u64 {
        self.parameters.steps_done()
    }

    /// The parameters of all its hops, a tied table once.
    pub fn parameters(&self) -> &ParameterSet {
        &self.parameters
    }

    fn sizes(&self, [sequences, tokens]: [usize; 2]) -> Sizes {
        let (width, heads) = (self.model.width as usize, self.model.heads as usize);
        Sizes { sequences, tokens, width, heads }
    }

    /// Checks what enters a hop.
    fn enter(
        &self,
        hop: u32,
        input: HopInput<'_>,
        [sequences, tokens]: [usize; 2],
    ) -> Result<(Source, Sizes), StageError> {
        let held = held(&self.hops, hop)?;
        let positions = self.model.positions as usize;
        if tokens > positions {
            return Err(StageError::TooLong { tokens, positions });
        }
        let sizes = self.sizes([sequences, tokens]);
        let rows = sizes.rows();
        if rows == 0 {
            return Err(StageError::Length { what: "a micro-batch", found: 0, expected: 1 });
        }
        match input {
            HopInput::Tokens(tokens) if held.part.embedding => {
                check_tokens("a micro-batch's tokens", tokens, rows, self.model.vocabulary)?;
                Ok((Source::Tokens(tokens.to_vec()), sizes))
            }
            HopInput::Hidden(hidden) if !held.part.embedding => {
                check_length("a hidden state", hidden.len(), rows * sizes.width)?;
                Ok((Source::Hidden(hidden), sizes))
            }
            HopInput::Tokens(_) => {
                Err(StageError::WrongHop { hop, reason: "has no embedding, so it takes no tokens" })
            }
            HopInput::Hidden(_) => {
                Err(StageError::WrongHop { hop, reason: "has the embedding, so it takes tokens" })
            }
        }
    }
}

fn held(hops: &[HeldHop], hop: u32) -> Result<&HeldHop, StageError> {
    hops.iter().find(|held| held.index == hop).ok_or(StageError::UnknownHop { hop })
}
