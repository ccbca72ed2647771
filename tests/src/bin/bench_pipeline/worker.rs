//! A worker that waits where another computes: the session's own schedule and link probe, real frames of real size.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, bail};
use protocol::{
    VERSION, frame,
    message::{
        Activation, Address, Assign, DeviceStatus, Down, FromWorker, Gradient, Hello, Pass, PassSeconds,
        ProbeAnswer, Profile, Ready, Refuse, Relayed, StepReport, Targets, TensorFrame, Timings, ToWorker,
        Tokens, Up, WorkerKind,
    },
    spec::{Assignment, Backend, Hop, RunSpec},
    tensor::{TensorMeta, encode_floats},
};
use tokio::time::{Instant, sleep_until};
use worker::{
    link::LinkProbe,
    schedule::{Op, Schedule},
};

use super::shaped::{Link, Shaped};

/// What a worker pretends to be.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// Seconds of one layer on one micro-batch, as it takes them.
    pub layer: PassSeconds,
    pub head: f64,
    /// As it says when asked.
    pub told: PassSeconds,
}

pub struct Emulated {
    socket: Shaped,
    speed: Speed,
    began: Instant,
    run: Option<RunSpec>,
    work: Option<Work>,
}

struct Work {
    assignment: Assignment,
    schedule: Schedule,
    step: u64,
    timings: Timings,
    reported: bool,
    /// An encoded activation; all are alike.
    tensor: (TensorMeta, Vec<u8>),
    is_last: BTreeSet<u32>,
}

impl Emulated {
    pub async fn connect(url: &str, name: &str, speed: Speed, link: Link, seed: u64) -> Result<Self> {
        let socket = Shaped::connect(url, link, seed).await?;
        let hello =
            Hello { protocol: VERSION, build: "bench".into(), kind: WorkerKind::Native, name: name.into() };
        socket.send(frame::encode(&FromWorker::Up(hello.into()), &[])?).await?;
        Ok(Self { socket, speed, began: Instant::now(), run: None, work: None })
    }

    /// Until the connection ends.
    pub async fn run(mut self) -> Result<()> {
        loop {
            while let Some(bytes) = self.socket.try_receive() {
                self.take(&bytes).await?;
            }
            match self.work.as_mut().and_then(|work| work.schedule.next_op()) {
                Some(op) => self.perform(op).await?,
                None => {
                    let began = Instant::now();
                    let bytes = self.socket.receive().await?;
                    if let Some(work) = &mut self.work {
                        work.timings.wait += began.elapsed().as_secs_f64();
                    }
                    self.take(&bytes).await?;
                }
            }
        }
    }

    async fn say(&self, message: impl Into<FromWorker>, payload: &[u8]) -> Result<()> {
        self.socket.send(frame::encode(&message.into(), payload)?).await
    }

    async fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let message = frame::decode(bytes)?.message;
        match message {
            ToWorker::Down(Down::Welcome(welcome)) => self.run = Some(welcome.run),
            ToWorker::Down(Down::Benchmark(_)) => self.profile().await?,
            ToWorker::Down(Down::Assign(Assign(assignment))) => self.assign(assignment).await?,
            ToWorker::Down(Down::Tokens(Tokens(TensorFrame { to, .. })))
            | ToWorker::Relayed(Relayed::Activation(Activation(TensorFrame { to, .. }))) => {
                if let Some(work) = self.work.as_mut().filter(|w| w.is_now(to)) {
                    work.schedule.input(to.hop, to.pass)?;
                }
            }
            ToWorker::Down(Down::Targets(Targets(TensorFrame { to, .. }))) => {
                if let Some(work) = self.work.as_mut().filter(|w| w.is_now(to)) {
                    work.schedule.targets(to.hop, to.pass)?;
                }
            }
            ToWorker::Relayed(Relayed::Gradient(Gradient(TensorFrame { to, .. }))) => {
                if let (Some(work), Pass::Train { micro_batch }) =
                    (self.work.as_mut().filter(|w| w.is_now(to)), to.pass)
                {
                    work.schedule.gradient(to.hop, micro_batch)?;
                }
            }
            ToWorker::Down(Down::Apply(apply)) => {
                if let Some(work) = &mut self.work {
                    work.step = apply.step + 1;
                    work.timings = Timings::default();
                    work.reported = false;
                    work.schedule = work.fresh();
                }
            }
            ToWorker::Down(Down::Revoke(_)) => self.work = None,
            ToWorker::Down(Down::Refuse(Refuse(refusal))) => bail!("refused: {refusal}"),
            _ => {}
        }
        Ok(())
    }

    async fn profile(&mut self) -> Result<()> {
        let mut probe = LinkProbe::begin();
        while let Some(ask) = probe.next(self.began.elapsed().as_secs_f64()) {
            self.say(Up::from(ask), &vec![0; ask.padding as usize]).await?;
            loop {
                let bytes = self.socket.receive().await?;
                if let ToWorker::Down(Down::ProbeAnswer(ProbeAnswer { number, .. })) =
                    frame::decode(&bytes)?.message
                    && probe.answered(number, self.began.elapsed().as_secs_f64())
                {
                    break;
                }
            }
        }
        let told = self.speed.told;
        let profile = Profile {
            backend: Backend::Cpu,
            device: "emulated".into(),
            threads: 1,
            memory_bytes: 0,
            layer: told,
            embedding: PassSeconds { forward: 1e-6, backward: 1e-6 },
            head_seconds: self.speed.head,
            link: Some(probe.result()),
        };
        self.say(Up::from(profile), &[]).await
    }

    async fn assign(&mut self, assignment: Assignment) -> Result<()> {
        let Some(run) = &self.run else { return Ok(()) };
        let shape = [run.sequences, run.context, run.model.width];
        let values = vec![0.5; shape.iter().product::<u32>() as usize];
        let tensor = encode_floats(&values, &shape, run.wire)?;
        let epoch = assignment.epoch;
        let mut work = Work {
            schedule: Schedule::new(&[], 0, 1),
            step: assignment.first_step,
            timings: Timings::default(),
            reported: false,
            tensor,
            is_last: assignment.hops.iter().filter(|h| h.part.head).map(|h| h.index).collect(),
            assignment,
        };
        work.schedule = work.fresh();
        self.work = Some(work);
        self.say(Up::from(Ready { epoch }), &[]).await
    }

    async fn perform(&mut self, op: Op) -> Result<()> {
        let Some(work) = &mut self.work else { return Ok(()) };
        let (Op::Forward { hop, .. } | Op::Loss { hop, .. } | Op::Backward { hop, .. }) = op;
        let Some(Hop { part, .. }) = work.assignment.hops.iter().find(|h| h.index == hop).cloned() else {
            bail!("hop {hop} is not held")
        };
        let layers = f64::from(part.end_layer - part.first_layer);
        let PassSeconds { forward, backward } = self.speed.layer;
        let (seconds, message) = match op {
            Op::Forward { pass, .. } => {
                work.timings.forward += layers * forward;
                (layers * forward, work.frame(activation, hop + 1, pass))
            }
            Op::Backward { micro_batch, .. } => {
                work.timings.backward += layers * backward;
                let pass = Pass::Train { micro_batch };
                (layers * backward, hop.checked_sub(1).and_then(|to| work.frame(gradient, to, pass)))
            }
            Op::Loss { pass, .. } => {
                work.timings.forward += layers * forward;
                work.timings.backward += layers * backward + self.speed.head;
                let seconds = layers * (forward + backward) + self.speed.head;
                (seconds, hop.checked_sub(1).and_then(|to| work.frame(gradient, to, pass)))
            }
        };
        sleep_until(Instant::now() + Duration::from_secs_f64(seconds)).await;
        if let (Some(message), Some(work)) = (message, &self.work) {
            self.say(message, &work.tensor.1).await?;
        }
        let Some(work) = &mut self.work else { return Ok(()) };
        if work.schedule.trained() && !work.reported {
            work.reported = true;
            let losses = if work.is_last.is_empty() { 0 } else { work.assignment.micro_batches };
            let report = StepReport {
                epoch: work.assignment.epoch,
                step: work.step,
                squared_norm: 1.0,
                losses: vec![1.0; losses as usize],
                timings: work.timings,
                status: DeviceStatus::default(),
            };
            self.say(Up::from(report), &[]).await?;
        }
        Ok(())
    }
}

impl Work {
    fn fresh(&self) -> Schedule {
        Schedule::new(&self.assignment.hops, self.assignment.micro_batches, self.assignment.window)
    }

    fn is_now(&self, to: Address) -> bool {
        to.epoch == self.assignment.epoch && to.step == self.step
    }

    fn frame(&self, kind: fn(TensorFrame) -> Relayed, hop: u32, pass: Pass) -> Option<Relayed> {
        let to = Address { epoch: self.assignment.epoch, step: self.step, pass, hop };
        Some(kind(TensorFrame { to, tensor: self.tensor.0.clone() }))
    }
}

fn activation(frame: TensorFrame) -> Relayed {
    Relayed::Activation(Activation(frame))
}

fn gradient(frame: TensorFrame) -> Relayed {
    Relayed::Gradient(Gradient(frame))
}
