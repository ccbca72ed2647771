//! Pipeline mode: a stage in training. Takes frames in, computes, and says what to send.

use std::{collections::BTreeMap, rc::Rc};

use engine::{
    Device,
    gpt2::{HopInput, Stage, StageError},
    parameters::ParameterSet,
};
use protocol::{
    checked::Checked,
    message::{
        Activation, Address, Apply, CloseTexts, Decode, Decoded, DeviceStatus, FromWorker, Gradient, Pass,
        Relayed, StepReport, Targets, TensorFrame, Timings, Tokens, Up, ValidationReport,
    },
    spec::{Assignment, Hop, Part, RunSpec, WeightSource},
    tensor::{Encoding, TensorMeta, decode_floats, decode_tokens, encode_floats},
};

use crate::{
    checks::check_assignment,
    error::TaskError,
    platform::{Clock, Compute, seconds_since},
    schedule::{Op, Schedule, ScheduleError},
    text_caches::{Out, TextCaches},
};

/// A frame to send: a message and, for tensors, its payload.
pub(crate) type Outgoing = (FromWorker, Vec<u8>);

enum Input {
    /// Ids [N, T].
    Tokens(Vec<u32>),
    /// Hidden states [N, T, d].
    Hidden(Vec<f32>),
}

/// What a finished update gives.
pub(crate) struct Applied {
    pub(crate) steps_done: u64,
    pub(crate) micro_batches: u32,
    pub(crate) timings: Timings,
    /// Mean loss of the step, where the head is held.
    pub(crate) loss: Option<f64>,
    /// The part of a snapshot, if one was asked for.
    pub(crate) snapshot: Option<Vec<u8>>,
}

/// One stage of one plan.
pub(crate) struct PipelineTask {
    run: RunSpec,
    assignment: Assignment,
    stage: Stage,
    step: u64,
    schedule: Schedule,
    inputs: BTreeMap<(u32, Pass), Input>,
    targets: BTreeMap<Pass, Vec<u32>>,
    gradients: BTreeMap<(u32, u32), Vec<f32>>,
    losses: BTreeMap<u32, f32>,
    texts: TextCaches,
    /// The timings that this step was reported with; None before.
    reported: Option<Timings>,
    /// Since the last report.
    pub(crate) timings: Timings,
}

impl PipelineTask {
    /// Loads the stage of an assignment. `files` are the parts of its snapshot, none for weights drawn from a seed.
    ///
    /// # Errors
    /// When the assignment does not fit the run, or the files do not hold the stage.
    pub(crate) fn load(
        run: &RunSpec,
        assignment: Assignment,
        files: &[Rc<Vec<u8>>],
        device: &Device,
    ) -> Result<Self, TaskError> {
        check_assignment(run, &assignment)?;
        let (model, hops) = (&run.model, &assignment.hops);
        let parameters = match &assignment.weights {
            WeightSource::Seed(seed) => ParameterSet::draw(model, hops, *seed, device),
            WeightSource::Snapshot(_) => {
                let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
                ParameterSet::import(model, hops, &files, device)
                    .map_err(|error| TaskError::Load(StageError::Parameters(error)))?
            }
        };
        let stage = match run.trains {
            true => Stage::new(run, hops, device, parameters),
            false => Stage::for_inference(model, hops, device, parameters),
        };
        let stage = stage.map_err(TaskError::Load)?;
        Ok(Self {
            step: assignment.first_step,
            schedule: Schedule::new(&assignment.hops, assignment.micro_batches, assignment.window),
            run: run.clone(),
            assignment,
            stage,
            inputs: BTreeMap::new(),
            targets: BTreeMap::new(),
            gradients: BTreeMap::new(),
            losses: BTreeMap::new(),
            texts: TextCaches::new(run.cache_bytes),
            reported: None,
            timings: Timings::default(),
        })
    }

    /// Whether it holds what another assignment asks for: then [`PipelineTask::renew`] spares loading it again. Weights
    /// that train are never those of the snapshot.
    pub(crate) fn holds(&self, other: &Assignment) -> bool {
        !self.run.trains && self.assignment.hops == other.hops && self.assignment.weights == other.weights
    }

    /// Becomes the stage of a plan with the same hops and weights.
    ///
    /// # Errors
    /// When the assignment does not fit the run.
    pub(crate) fn renew(&mut self, assignment: Assignment) -> Result<(), TaskError> {
        check_assignment(&self.run, &assignment)?;
        self.texts.clear();
        self.assignment = assignment;
        Ok(())
    }

    /// New tokens of texts through a hop; None where they are of another plan.
    ///
    /// # Errors
    /// As for [`TextCaches::decode`].
    pub(crate) async fn decode(
        &mut self,
        decode: &Decode,
        payload: &[u8],
        clock: &impl Clock,
    ) -> Result<Option<Outgoing>, TaskError> {
        let of = decode.of;
        if of.epoch != self.epoch() {
            return Ok(None);
        }
        let began = clock.now();
        let part = self.part(of.hop).cloned().ok_or(ScheduleError::NotHere(of.hop))?;
        let model = &self.run.model;
        let Out { hidden, tokens } = self.texts.decode(&self.stage, model, &part, decode, payload).await?;
        let shape = [hidden.len() as u32 / model.width.max(1), model.width];
        let (rows, payload) = encode_floats(&hidden, &shape, Encoding::F32)?;
        let decoded = Decoded { of, seconds: seconds_since(clock, began), tokens, rows };
        decoded.check()?;
        Ok(Some((Up::from(decoded).into(), payload)))
    }

    /// Texts have ended.
    pub(crate) fn close_texts(&mut self, close: &CloseTexts) {
        if close.epoch == self.epoch() {
            self.texts.close(&close.texts);
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.assignment.epoch
    }

    /// The hops held.
    pub(crate) fn hops(&self) -> &[Hop] {
        &self.assignment.hops
    }

    /// [N, T]
    fn shape(&self) -> [usize; 2] {
        [self.run.sequences as usize, self.run.context as usize]
    }

    /// The part of the model at a hop that is held here.
    fn part(&self, hop: u32) -> Option<&Part> {
        self.assignment.hops.iter().find(|held| held.index == hop).map(|held| &held.part)
    }

    /// Whether a frame is of this plan and of the step in progress. Others are passed over.
    fn is_due(&self, to: &Address) -> bool {
        (to.epoch, to.step) == (self.epoch(), self.step)
    }

    /// Takes token ids [N, T] in.
    ///
    /// # Errors
    /// When they are not of that shape, not whole, or not expected.
    pub(crate) fn tokens(&mut self, tokens: &Tokens, payload: &[u8]) -> Result<(), TaskError> {
        let TensorFrame { to, tensor } = &tokens.0;
        if !self.is_due(to) {
            return Ok(());
        }
        let ids = self.ids(tensor, payload)?;
        self.schedule.input(to.hop, to.pass)?;
        self.inputs.insert((to.hop, to.pass), Input::Tokens(ids));
        Ok(())
    }

    /// Takes target ids [N, T] in.
    ///
    /// # Errors
    /// As for [`PipelineTask::tokens`].
    pub(crate) fn targets(&mut self, targets: &Targets, payload: &[u8]) -> Result<(), TaskError> {
        let TensorFrame { to, tensor } = &targets.0;
        if !self.is_due(to) {
            return Ok(());
        }
        let ids = self.ids(tensor, payload)?;
        self.schedule.targets(to.hop, to.pass)?;
        self.targets.insert(to.pass, ids);
        Ok(())
    }

    /// Takes hidden states or their gradient, [N, T, d], in.
    ///
    /// # Errors
    /// As for [`PipelineTask::tokens`].
    pub(crate) fn relayed(&mut self, relayed: &Relayed, payload: &[u8]) -> Result<(), TaskError> {
        let TensorFrame { to, tensor } = relayed.frame();
        if !self.is_due(to) {
            return Ok(());
        }
        expect_shape(tensor, &[self.run.sequences, self.run.context, self.run.model.width])?;
        let values = decode_floats(tensor, payload)?;
        match (relayed, to.pass) {
            (Relayed::Activation(_), pass) => {
                self.schedule.input(to.hop, pass)?;
                self.inputs.insert((to.hop, pass), Input::Hidden(values));
            }
            (Relayed::Gradient(_), Pass::Train { micro_batch }) => {
                self.schedule.gradient(to.hop, micro_batch)?;
                self.gradients.insert((to.hop, micro_batch), values);
            }
            // Validation has no way back.
            (Relayed::Gradient(_), Pass::Validate { .. }) => {}
        }
        Ok(())
    }

    fn ids(&self, tensor: &TensorMeta, payload: &[u8]) -> Result<Vec<u32>, TaskError> {
        expect_shape(tensor, &[self.run.sequences, self.run.context])?;
        Ok(decode_tokens(tensor, payload)?)
    }

    /// The next thing to compute, taken as begun.
    pub(crate) fn next_op(&mut self) -> Option<Op> {
        self.schedule.next_op()
    }

    /// Computes, and gives what is to be sent.
    ///
    /// # Errors
    /// When what came does not fit the stage, a number is not finite, or the device failed.
    pub(crate) async fn perform(
        &mut self,
        op: Op,
        clock: &impl Clock,
        status: impl Fn() -> DeviceStatus,
    ) -> Result<Vec<Outgoing>, TaskError> {
        let began = clock.now();
        let mut out = match op {
            Op::Forward { hop, pass } => self.forward(hop, pass).await?,
            Op::Loss { hop, pass } => self.loss(hop, pass).await?,
            Op::Backward { hop, micro_batch } => self.backward(hop, micro_batch).await?,
        };
        if let Some(work) = self.compute(op) {
            clock.computed(work).await;
        }
        let seconds = seconds_since(clock, began);
        match op {
            Op::Forward { .. } | Op::Loss { pass: Pass::Validate { .. }, .. } => {
                self.timings.forward += seconds;
            }
            Op::Loss { .. } | Op::Backward { .. } => self.timings.backward += seconds,
        }
        if self.schedule.trained() && self.reported.is_none() {
            out.push((Up::from(self.report(clock, status()).await?).into(), vec![]));
        }
        Ok(out)
    }

    /// What a pass is for the clock.
    fn compute(&self, op: Op) -> Option<Compute<'_>> {
        match op {
            Op::Forward { hop, .. } | Op::Loss { hop, pass: Pass::Validate { .. } } => {
                self.part(hop).map(Compute::Forward)
            }
            Op::Loss { hop, .. } => self.part(hop).map(Compute::Loss),
            Op::Backward { hop, .. } => self.part(hop).map(Compute::Backward),
        }
    }

    async fn report(&mut self, clock: &impl Clock, status: DeviceStatus) -> Result<StepReport, TaskError> {
        let began = clock.now();
        let squared_norm = self.stage.squared_norm().await?;
        self.timings.optimizer += seconds_since(clock, began);
        let timings = std::mem::take(&mut self.timings);
        self.reported = Some(timings);
        let losses = self.losses.values().copied().collect();
        let (epoch, step) = (self.epoch(), self.step);
        let report = StepReport { epoch, step, squared_norm, losses, timings, status };
        report.check()?;
        Ok(report)
    }

    async fn forward(&mut self, hop: u32, pass: Pass) -> Result<Vec<Outgoing>, TaskError> {
        let shape = self.shape();
        let hidden = match self.inputs.remove(&(hop, pass)) {
            Some(Input::Tokens(tokens)) => self.stage.forward_tokens(hop, pass, &tokens, shape).await?,
            Some(Input::Hidden(hidden)) => self.stage.forward_hidden(hop, pass, hidden, shape).await?,
            None => return Ok(vec![]),
        };
        Ok(vec![self.floats(|frame| Activation(frame).into(), hop + 1, pass, &hidden)?])
    }

    async fn loss(&mut self, hop: u32, pass: Pass) -> Result<Vec<Outgoing>, TaskError> {
        let (Some(input), Some(targets)) = (self.inputs.remove(&(hop, pass)), self.targets.remove(&pass))
        else {
            return Ok(vec![]);
        };
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
                let report =
                    ValidationReport { epoch: self.epoch(), step: self.step, batch, loss: outcome.loss };
                report.check()?;
                Ok(vec![(Up::from(report).into(), vec![])])
            }
            Pass::Train { micro_batch } => {
                self.losses.insert(micro_batch, outcome.loss);
                self.gradient(hop, pass, outcome.input_gradient)
            }
        }
    }

    async fn backward(&mut self, hop: u32, micro_batch: u32) -> Result<Vec<Outgoing>, TaskError> {
        let Some(gradient) = self.gradients.remove(&(hop, micro_batch)) else { return Ok(vec![]) };
        let gradient = self.stage.backward(hop, micro_batch, gradient).await?;
        self.gradient(hop, Pass::Train { micro_batch }, gradient)
    }

    /// The gradient of what entered `hop`, for the hop before; none for the first.
    fn gradient(&self, hop: u32, pass: Pass, gradient: Option<Vec<f32>>) -> Result<Vec<Outgoing>, TaskError> {
        let (Some(gradient), Some(before)) = (gradient, hop.checked_sub(1)) else { return Ok(vec![]) };
        Ok(vec![self.floats(|frame| Gradient(frame).into(), before, pass, &gradient)?])
    }

    fn floats(
        &self,
        relayed: impl Fn(TensorFrame) -> Relayed,
        hop: u32,
        pass: Pass,
        values: &[f32],
    ) -> Result<Outgoing, TaskError> {
        let shape = [self.run.sequences, self.run.context, self.run.model.width];
        let encoding = match self.run.wire {
            Encoding::U32 => Encoding::F32,
            floats => floats,
        };
        let (tensor, payload) = encode_floats(values, &shape, encoding)?;
        let to = Address { epoch: self.epoch(), step: self.step, pass, hop };
        Ok((relayed(TensorFrame { to, tensor }).into(), payload))
    }

    /// Updates the weights and gets ready for the next step. None for a step that is not in progress here, or has not
    /// been reported.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) async fn apply(
        &mut self,
        apply: &Apply,
        clock: &impl Clock,
    ) -> Result<Option<Applied>, TaskError> {
        if (apply.epoch, apply.step) != (self.epoch(), self.step) {
            return Ok(None);
        }
        let Some(timings) = self.reported.take() else { return Ok(None) };
        let began = clock.now();
        self.stage.apply(apply.clip_scale, apply.learning_rate).await?;
        self.step += 1;
        let snapshot = match apply.snapshot {
            true => Some(self.stage.export(self.run.moments).await?),
            false => None,
        };
        clock.computed(Compute::Update).await;
        self.timings.optimizer += seconds_since(clock, began);
        let losses = std::mem::take(&mut self.losses);
        let applied = Applied {
            steps_done: self.step,
            micro_batches: self.assignment.micro_batches,
            timings,
            loss: (!losses.is_empty())
                .then(|| losses.values().map(|l| f64::from(*l)).sum::<f64>() / losses.len() as f64),
            snapshot,
        };
        let Assignment { hops, micro_batches, window, .. } = &self.assignment;
        self.schedule = Schedule::new(hops, *micro_batches, *window);
        self.inputs.clear();
        self.targets.clear();
        self.gradients.clear();
        Ok(Some(applied))
    }
}

fn expect_shape(tensor: &TensorMeta, wanted: &[u32]) -> Result<(), TaskError> {
    if tensor.shape == wanted {
        Ok(())
    } else {
        Err(TaskError::Shape { found: tensor.shape.clone(), wanted: wanted.to_vec() })
    }
}
