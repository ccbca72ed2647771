//! A stage in training: takes frames in, computes, and says what to send.

use std::collections::BTreeMap;

use protocol::{
    message::{Address, Apply, Message, Pass, StepReport, TensorFrame, Timings, ValidationReport, Vitals},
    spec::{Assignment, RunSpec},
    tensor::{CodecError, Encoding, TensorMeta, decode_floats, decode_tokens, encode_floats},
};

use super::schedule::{Op, Schedule, ScheduleError};
use crate::stage::{HopInput, Stage, StageError};

/// Why a stage cannot go on with its step.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error("a tensor could not be read: {0}")]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error("a tensor of shape {found:?} came where {wanted:?} is expected")]
    Shape { found: Vec<u32>, wanted: Vec<u32> },
}

/// A frame to send: a message and, for tensors, its payload.
pub type Outgoing = (Message, Vec<u8>);

enum Input {
    Tokens(Vec<u32>),
    Hidden(Vec<f32>),
}

/// What a finished update gives.
pub struct Applied {
    pub steps_done: u64,
    pub micro_batches: u32,
    pub timings: Timings,
    /// Mean loss of the step, where the head is held.
    pub loss: Option<f64>,
    /// The part of a snapshot, if one was asked for.
    pub snapshot: Option<Vec<u8>>,
}

/// One stage of one plan.
pub struct Work {
    run: RunSpec,
    assignment: Assignment,
    stage: Stage,
    step: u64,
    schedule: Schedule,
    inputs: BTreeMap<(u32, Pass), Input>,
    targets: BTreeMap<Pass, Vec<u32>>,
    gradients: BTreeMap<(u32, u32), Vec<f32>>,
    losses: BTreeMap<u32, f32>,
    reported: bool,
    pub timings: Timings,
}

impl Work {
    pub fn new(run: RunSpec, assignment: Assignment, stage: Stage) -> Self {
        let schedule = Schedule::new(&assignment.hops, assignment.micro_batches, assignment.window);
        Self {
            step: assignment.first_step,
            run,
            assignment,
            stage,
            schedule,
            inputs: BTreeMap::new(),
            targets: BTreeMap::new(),
            gradients: BTreeMap::new(),
            losses: BTreeMap::new(),
            reported: false,
            timings: Timings::default(),
        }
    }

    pub fn epoch(&self) -> u64 {
        self.assignment.epoch
    }

    fn shape(&self) -> [usize; 2] {
        [self.run.sequences as usize, self.run.context as usize]
    }

    fn is_last(&self, hop: u32) -> bool {
        hop + 1 == self.assignment.hop_count
    }

    /// Take a tensor in. Frames of another plan or step are passed over.
    pub fn tensor(&mut self, message: &Message, payload: &[u8]) -> Result<(), WorkError> {
        let Some(TensorFrame { to, tensor }) = message.tensor() else { return Ok(()) };
        if to.epoch != self.epoch() || to.step != self.step {
            return Ok(());
        }
        let [n, t] = [self.run.sequences, self.run.context];
        match message {
            Message::Tokens(_) => {
                expect_shape(tensor, &[n, t])?;
                let tokens = decode_tokens(tensor, payload)?;
                self.schedule.input(to.hop, to.pass)?;
                self.inputs.insert((to.hop, to.pass), Input::Tokens(tokens));
            }
            Message::Targets(_) => {
                expect_shape(tensor, &[n, t])?;
                let tokens = decode_tokens(tensor, payload)?;
                self.schedule.targets(to.hop, to.pass)?;
                self.targets.insert(to.pass, tokens);
            }
            Message::Activation(_) => {
                expect_shape(tensor, &[n, t, self.run.model.width])?;
                let hidden = decode_floats(tensor, payload)?;
                self.schedule.input(to.hop, to.pass)?;
                self.inputs.insert((to.hop, to.pass), Input::Hidden(hidden));
            }
            Message::Gradient(_) => {
                expect_shape(tensor, &[n, t, self.run.model.width])?;
                let gradient = decode_floats(tensor, payload)?;
                let Pass::Train { micro_batch } = to.pass else { return Ok(()) };
                self.schedule.gradient(to.hop, micro_batch)?;
                self.gradients.insert((to.hop, micro_batch), gradient);
            }
            _ => {}
        }
        Ok(())
    }

    /// The next thing to compute, taken as begun.
    pub fn next_op(&mut self) -> Option<Op> {
        self.schedule.next_op()
    }

    /// Compute, and give what is to be sent. `now` is a clock in seconds.
    pub async fn perform(
        &mut self,
        op: Op,
        now: impl Fn() -> f64,
        vitals: impl Fn() -> Vitals,
    ) -> Result<Vec<Outgoing>, WorkError> {
        let began = now();
        let mut out = match op {
            Op::Forward { hop, pass } => self.forward(hop, pass).await?,
            Op::Loss { hop, pass } => self.loss(hop, pass).await?,
            Op::Backward { hop, micro_batch } => self.backward(hop, micro_batch).await?,
        };
        let seconds = now() - began;
        match op {
            Op::Forward { .. } | Op::Loss { pass: Pass::Validate { .. }, .. } => {
                self.timings.forward += seconds
            }
            // The loss goes through the hop both ways; about two thirds of that is the way back.
            Op::Loss { .. } => {
                self.timings.forward += seconds / 3.0;
                self.timings.backward += seconds * 2.0 / 3.0;
            }
            Op::Backward { .. } => self.timings.backward += seconds,
        }
        if self.schedule.trained() && !self.reported {
            self.reported = true;
            let began = now();
            let squared_norm = self.stage.squared_norm().await?;
            self.timings.optimizer += now() - began;
            out.push((
                Message::StepReport(StepReport {
                    epoch: self.epoch(),
                    step: self.step,
                    squared_norm,
                    losses: self.losses.values().copied().collect(),
                    timings: self.timings,
                    vitals: vitals(),
                }),
                vec![],
            ));
        }
        Ok(out)
    }

    async fn forward(&mut self, hop: u32, pass: Pass) -> Result<Vec<Outgoing>, WorkError> {
        let shape = self.shape();
        let hidden = match self.inputs.remove(&(hop, pass)) {
            Some(Input::Tokens(tokens)) => self.stage.forward_tokens(hop, pass, &tokens, shape).await?,
            Some(Input::Hidden(hidden)) => self.stage.forward_hidden(hop, pass, hidden, shape).await?,
            None => return Ok(vec![]),
        };
        Ok(vec![self.floats(Message::Activation, hop + 1, pass, &hidden)?])
    }

    async fn loss(&mut self, hop: u32, pass: Pass) -> Result<Vec<Outgoing>, WorkError> {
        let (Some(input), Some(targets)) = (self.inputs.remove(&(hop, pass)), self.targets.remove(&pass))
        else {
            return Ok(vec![]);
        };
        debug_assert!(self.is_last(hop));
        let tokens;
        let input = match input {
            Input::Tokens(ids) => {
                tokens = ids;
                HopInput::Tokens(&tokens)
            }
            Input::Hidden(hidden) => HopInput::Hidden(hidden),
        };
        let scale = 1.0 / self.assignment.micro_batches as f32;
        let outcome = self.stage.loss(hop, pass, input, &targets, self.shape(), scale).await?;
        match pass {
            Pass::Validate { batch } => {
                let (epoch, step, loss) = (self.epoch(), self.step, outcome.loss);
                Ok(vec![(Message::ValidationReport(ValidationReport { epoch, step, batch, loss }), vec![])])
            }
            Pass::Train { micro_batch } => {
                self.losses.insert(micro_batch, outcome.loss);
                match outcome.input_gradient {
                    Some(gradient) => Ok(vec![self.floats(Message::Gradient, hop - 1, pass, &gradient)?]),
                    None => Ok(vec![]),
                }
            }
        }
    }

    async fn backward(&mut self, hop: u32, micro_batch: u32) -> Result<Vec<Outgoing>, WorkError> {
        let Some(gradient) = self.gradients.remove(&(hop, micro_batch)) else { return Ok(vec![]) };
        match self.stage.backward(hop, micro_batch, gradient).await? {
            Some(gradient) => {
                Ok(vec![self.floats(Message::Gradient, hop - 1, Pass::Train { micro_batch }, &gradient)?])
            }
            None => Ok(vec![]),
        }
    }

    fn floats(
        &self,
        kind: fn(TensorFrame) -> Message,
        hop: u32,
        pass: Pass,
        values: &[f32],
    ) -> Result<Outgoing, WorkError> {
        let shape = [self.run.sequences, self.run.context, self.run.model.width];
        let encoding = match self.run.wire {
            Encoding::U32 => Encoding::F32,
            floats => floats,
        };
        let (tensor, payload) = encode_floats(values, &shape, encoding)?;
        let to = Address { epoch: self.epoch(), step: self.step, pass, hop };
        Ok((kind(TensorFrame { to, tensor }), payload))
    }

    /// Update the weights and get ready for the next step. None for a step that is not ours.
    pub async fn apply(
        &mut self,
        apply: &Apply,
        now: impl Fn() -> f64,
    ) -> Result<Option<Applied>, WorkError> {
        if apply.epoch != self.epoch() || apply.step != self.step {
            return Ok(None);
        }
        let began = now();
        self.stage.apply(apply.clip_scale, apply.learning_rate).await?;
        self.step += 1;
        let snapshot = match apply.snapshot {
            true => Some(self.stage.export(self.run.moments).await?),
            false => None,
        };
        self.timings.optimizer += now() - began;
        let losses = std::mem::take(&mut self.losses);
        let applied = Applied {
            steps_done: self.step,
            micro_batches: self.assignment.micro_batches,
            timings: std::mem::take(&mut self.timings),
            loss: (!losses.is_empty())
                .then(|| losses.values().map(|l| f64::from(*l)).sum::<f64>() / losses.len() as f64),
            snapshot,
        };
        let Assignment { hops, micro_batches, window, .. } = &self.assignment;
        self.schedule = Schedule::new(hops, *micro_batches, *window);
        self.inputs.clear();
        self.targets.clear();
        self.gradients.clear();
        self.reported = false;
        Ok(Some(applied))
    }
}

fn expect_shape(tensor: &TensorMeta, wanted: &[u32]) -> Result<(), WorkError> {
    if tensor.shape == wanted {
        Ok(())
    } else {
        Err(WorkError::Shape { found: tensor.shape.clone(), wanted: wanted.to_vec() })
    }
}
