//! One connection to the coordinator: the handshake, then messages in and work out.

use std::{cell::Cell, collections::VecDeque, future::Future, pin::Pin, rc::Rc};

use futures::{
    FutureExt, StreamExt,
    future::{Either, select},
    pin_mut,
    stream::FuturesUnordered,
};
use protocol::{
    VERSION,
    blob::BlobRef,
    frame,
    limits::{SENTENCE, shorten},
    message::{
        DeltaReady, Evaluate, Evaluated, Fault, FaultKind, Hello, LinkSpeed, Message, Round, SnapshotReady,
        TensorFrame, Welcome,
    },
    spec::{Assignment, WeightSource},
    tab::SessionEvent,
};

use super::{
    Closed, End, Leave,
    devices::Devices,
    host::{Blobs, Clock, Host, HostError, Network, Transport},
    kept::Kept,
    link::LinkProbe,
    replica::{self, Bench, ReplicaError, RoundWork},
    transfer,
    work::{Work, WorkError},
};
use crate::{
    Device,
    block::BlockError,
    parameters::ParameterSet,
    stage::{Stage, StageError},
};

/// Seconds to wait for the coordinator's answer to Hello.
const WELCOME_SECONDS: f64 = 20.0;

/// Seconds to wait for the answer to a probe before the link counts as not measured.
const PROBE_SECONDS: f64 = 20.0;

/// Seconds between heartbeats before the coordinator has said how many.
const FIRST_HEARTBEAT_SECONDS: f64 = 5.0;

type Upload<'a> = Pin<Box<dyn Future<Output = Result<SnapshotReady, HostError>> + 'a>>;

pub(super) struct Connection<'a, N: Network, C, B> {
    host: &'a Host<N, C, B>,
    transport: &'a N::Transport,
    lent: Lent<'a>,
    leave: &'a Leave,
    /// Frames that came while an answer was waited for.
    set_aside: VecDeque<Vec<u8>>,
    welcome: Option<Welcome>,
    device: Option<Device>,
    work: Option<Work>,
    /// Block mode: what waits for its windows.
    asked: Option<Asked>,
    /// Block mode: the round under way.
    round: Option<RoundWork>,
    uploads: FuturesUnordered<Upload<'a>>,
    heartbeat_seconds: &'a Cell<f64>,
    sent: Cell<u64>,
    received: Cell<u64>,
}

/// What outlives a connection.
pub(super) struct Lent<'a> {
    pub devices: &'a mut Devices,
    pub kept: &'a mut Kept,
    pub bench: &'a mut Bench,
}

/// A task of block mode whose windows follow in the next frame.
enum Asked {
    Round(Round),
    Evaluate(Evaluate),
}

/// Why a message ends the connection.
enum Stop {
    End(End),
    Lost(String),
}

impl From<HostError> for Stop {
    fn from(e: HostError) -> Self {
        Stop::Lost(e.to_string())
    }
}

/// What woke the session up.
enum Woken {
    Frame(Vec<u8>),
    Uploaded(Result<SnapshotReady, HostError>),
    Leave,
}

impl<'a, N: Network, C: Clock, B: Blobs> Connection<'a, N, C, B> {
    pub(super) async fn run(
        host: &'a Host<N, C, B>,
        transport: &'a N::Transport,
        lent: Lent<'a>,
        leave: &'a Leave,
        heartbeat_seconds: &'a Cell<f64>,
        hello: Hello,
    ) -> Closed {
        heartbeat_seconds.set(FIRST_HEARTBEAT_SECONDS);
        let mut connection = Connection {
            host,
            transport,
            lent,
            leave,
            set_aside: VecDeque::new(),
            welcome: None,
            device: None,
            work: None,
            asked: None,
            round: None,
            uploads: FuturesUnordered::new(),
            heartbeat_seconds,
            sent: Cell::new(0),
            received: Cell::new(0),
        };
        let stop = {
            let main = connection.main(hello);
            let beat = beat(host, transport, heartbeat_seconds);
            pin_mut!(main, beat);
            match select(main, beat).await {
                Either::Left((stop, _)) | Either::Right((stop, _)) => stop,
            }
        };
        match stop {
            Stop::End(End::Left) => {
                // Best effort: the coordinator notices a closed connection too.
                let leaving = Message::Leaving { reason: "left by its own choice".into() };
                let _ = connection.send(&leaving, &[]).await;
                transport.finish().await;
                Closed::For(End::Left)
            }
            Stop::End(end) => Closed::For(end),
            Stop::Lost(reason) => Closed::Lost { reason, progress: connection.welcome.is_some() },
        }
    }

    async fn send(&self, message: &Message, payload: &[u8]) -> Result<(), Stop> {
        let bytes = frame::encode(message, payload).map_err(|e| Stop::End(End::Failed(e.to_string())))?;
        self.sent.set(self.sent.get() + bytes.len() as u64);
        Ok(self.transport.send(bytes).await?)
    }

    fn tell(&self, event: SessionEvent) {
        (self.host.tell)(event);
    }

    async fn main(&mut self, hello: Hello) -> Stop {
        match self.handshake(hello).await {
            Ok(()) => {}
            Err(stop) => return stop,
        }
        loop {
            if let Err(stop) = self.turn().await {
                return stop;
            }
        }
    }

    async fn handshake(&mut self, hello: Hello) -> Result<(), Stop> {
        self.send(&Message::Hello(hello), &[]).await?;
        let answer = {
            let answer = self.transport.receive();
            let late = self.host.clock.sleep(WELCOME_SECONDS);
            pin_mut!(answer, late);
            match select(answer, late).await {
                Either::Left((bytes, _)) => bytes?,
                Either::Right(_) => return Err(Stop::Lost("the coordinator did not answer".into())),
            }
        };
        self.take(answer).await
    }

    /// Take in what has arrived, then compute one thing, or wait.
    async fn turn(&mut self) -> Result<(), Stop> {
        if self.leave.is_asked() {
            return Err(Stop::End(End::Left));
        }
        while let Some(bytes) = self.set_aside.pop_front() {
            self.take(bytes).await?;
        }
        while let Some(bytes) = self.transport.try_receive()? {
            self.take(bytes).await?;
        }
        if let Some(Some(done)) = self.uploads.next().now_or_never() {
            self.uploaded(done).await?;
        }
        if let Some(op) = self.work.as_mut().and_then(Work::next_op) {
            let clock = &self.host.clock;
            let vitals = &self.host.vitals;
            let Some(work) = &mut self.work else { return Ok(()) };
            match work.perform(op, || clock.now(), vitals).await {
                Ok(outgoing) => {
                    let began = clock.now();
                    for (message, payload) in outgoing {
                        self.send(&message, &payload).await?;
                    }
                    let seconds = self.host.clock.now() - began;
                    if let Some(work) = &mut self.work {
                        work.timings.send += seconds;
                    }
                }
                Err(e) => self.fail(e).await?,
            }
            self.host.clock.breathe().await;
            return Ok(());
        }
        if self.round.is_some() {
            self.local_step().await?;
            self.host.clock.breathe().await;
            return Ok(());
        }
        let began = self.host.clock.now();
        let woken = self.wait().await?;
        let waited = self.host.clock.now() - began;
        if let Some(work) = &mut self.work {
            work.timings.wait += waited;
        }
        match woken {
            Woken::Frame(bytes) => self.take(bytes).await,
            Woken::Uploaded(done) => self.uploaded(done).await,
            Woken::Leave => Err(Stop::End(End::Left)),
        }
    }

    async fn wait(&mut self) -> Result<Woken, Stop> {
        let frame = self.transport.receive().fuse();
        let leave = self.leave.asked().fuse();
        pin_mut!(frame, leave);
        futures::select! {
            bytes = frame => Ok(Woken::Frame(bytes?)),
            done = self.uploads.select_next_some() => Ok(Woken::Uploaded(done)),
            () = leave => Ok(Woken::Leave),
        }
    }

    async fn uploaded(&mut self, done: Result<SnapshotReady, HostError>) -> Result<(), Stop> {
        match done {
            Ok(part) => self.send(&Message::SnapshotReady(part), &[]).await,
            // Without its part the snapshot stays incomplete: connect again and take up the last one.
            Err(e) => Err(Stop::Lost(format!("the weights could not be uploaded: {e}"))),
        }
    }

    /// Take a frame in and do what it says.
    async fn take(&mut self, bytes: Vec<u8>) -> Result<(), Stop> {
        self.received.set(self.received.get() + bytes.len() as u64);
        let frame::Frame { message, payload } = match frame::decode(&bytes) {
            Ok(frame) => frame,
            Err(e) => {
                return Err(Stop::End(End::Failed(format!("the coordinator cannot be understood: {e}"))));
            }
        };
        match message {
            Message::Welcome(welcome) => {
                self.heartbeat_seconds.set(f64::from(welcome.heartbeat_ms) / 1e3);
                self.tell(SessionEvent::Welcomed { worker: welcome.worker, run: welcome.run.clone() });
                self.welcome = Some(welcome);
                Ok(())
            }
            Message::Refuse(refusal) => {
                use protocol::refusal::Refusal;
                match refusal {
                    // The lease of a tab that slept has ended; the tab is awake again.
                    Refusal::LeaseEnded { .. } => Err(Stop::Lost(refusal.to_string())),
                    refusal => Err(Stop::End(End::Refused(refusal.to_string()))),
                }
            }
            Message::Drain { reason } => Err(Stop::End(End::Over(reason))),
            Message::Benchmark => self.benchmark().await,
            Message::Assign(assignment) => self.assign(assignment).await,
            Message::Revoke { epoch } => {
                if self.work.as_ref().is_some_and(|w| w.epoch() <= epoch) {
                    self.work = None;
                    self.tell(SessionEvent::Spare);
                }
                Ok(())
            }
            Message::Apply(apply) => {
                let clock = &self.host.clock;
                let Some(work) = &mut self.work else { return Ok(()) };
                let epoch = work.epoch();
                match work.apply(&apply, || clock.now()).await {
                    Ok(Some(applied)) => {
                        if let Some(bytes) = applied.snapshot {
                            self.upload(epoch, applied.steps_done, bytes);
                        }
                        self.tell(SessionEvent::Step {
                            step: applied.steps_done,
                            micro_batches: applied.micro_batches,
                            timings: applied.timings,
                            loss: applied.loss,
                            bytes_sent: self.sent.get(),
                            bytes_received: self.received.get(),
                        });
                        Ok(())
                    }
                    Ok(None) => Ok(()),
                    Err(e) => self.fail(e).await,
                }
            }
            Message::Round(round) => {
                // Whatever was under way is too late now.
                self.round = None;
                self.asked = Some(Asked::Round(round));
                Ok(())
            }
            Message::Evaluate(task) => {
                self.asked = Some(Asked::Evaluate(task));
                Ok(())
            }
            Message::Judged(judged) => {
                self.lent.bench.judged(&judged);
                self.tell(SessionEvent::Judged { round: judged.round, refused: judged.refused });
                Ok(())
            }
            Message::Tokens(frame) if self.asked.is_some() => self.windows(&frame, payload).await,
            message @ (Message::Tokens(_)
            | Message::Targets(_)
            | Message::Activation(_)
            | Message::Gradient(_)) => {
                let began = self.host.clock.now();
                let taken = match &mut self.work {
                    Some(work) => {
                        let taken = work.tensor(&message, payload);
                        work.timings.receive += self.host.clock.now() - began;
                        taken
                    }
                    None => Ok(()), // of a plan that was revoked
                };
                match taken {
                    Ok(()) => Ok(()),
                    Err(e) => self.fail(e).await,
                }
            }
            Message::SnapshotKept { steps_done } => {
                self.lent.kept.accepted(steps_done);
                Ok(())
            }
            // Late: its probe was given up.
            Message::ProbeAnswer { .. } => Ok(()),
            other => Err(Stop::End(End::Failed(format!(
                "the coordinator sent {}, which is a worker's word",
                other.name()
            )))),
        }
    }

    async fn benchmark(&mut self) -> Result<(), Stop> {
        let Some(welcome) = &self.welcome else { return Ok(()) };
        self.tell(SessionEvent::Benchmarking);
        let clock = &self.host.clock;
        clock.breathe().await;
        match self.lent.devices.fastest(&welcome.run, || clock.now()).await {
            Ok((mut profile, device)) => {
                self.device = Some(device);
                profile.link = self.measure_link().await?;
                self.tell(SessionEvent::Profiled { profile: profile.clone() });
                self.send(&Message::Profile(profile), &[]).await?;
                self.tell(SessionEvent::Spare);
                Ok(())
            }
            Err(words) => Err(Stop::End(End::Failed(format!("this device cannot compute: {words}")))),
        }
    }

    /// Times frames to the coordinator and back. What else arrives meanwhile is set aside.
    async fn measure_link(&mut self) -> Result<Option<LinkSpeed>, Stop> {
        let clock = &self.host.clock;
        let mut probe = LinkProbe::begin();
        while let Some(ask) = probe.next(clock.now()) {
            self.send(&Message::Probe(ask), &vec![0; ask.padding as usize]).await?;
            let deadline = clock.sleep(PROBE_SECONDS).fuse();
            pin_mut!(deadline);
            loop {
                let bytes = {
                    let frame = self.transport.receive().fuse();
                    pin_mut!(frame);
                    futures::select! {
                        bytes = frame => bytes?,
                        () = deadline => return Ok(None),
                    }
                };
                let number = match frame::decode(&bytes) {
                    Ok(frame::Frame { message: Message::ProbeAnswer { number, .. }, .. }) => number,
                    _ => {
                        self.set_aside.push_back(bytes);
                        continue;
                    }
                };
                if probe.answered(number, clock.now()) {
                    break;
                }
            }
        }
        Ok(Some(probe.result()))
    }

    async fn assign(&mut self, assignment: Assignment) -> Result<(), Stop> {
        let (Some(welcome), Some(device)) = (self.welcome.clone(), self.device.clone()) else {
            return Ok(());
        };
        let (epoch, hops) = (assignment.epoch, assignment.hops.clone());
        self.work = None;
        self.tell(SessionEvent::Loading { epoch, hops: hops.clone() });
        let model = &welcome.run.model;
        let parameters = match &assignment.weights {
            WeightSource::Seed(seed) => ParameterSet::draw(model, &hops, *seed, &device),
            WeightSource::Snapshot(parts) => {
                let mut files = Vec::with_capacity(parts.len());
                for part in parts {
                    files.push(self.fetch(&welcome.token, *part).await?);
                }
                let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
                match ParameterSet::import(model, &hops, &files, &device) {
                    Ok(parameters) => parameters,
                    Err(e) => return self.fault(epoch, FaultKind::Weights, e.to_string()).await,
                }
            }
        };
        match Stage::new(&welcome.run, &hops, &device, parameters) {
            Ok(stage) => {
                self.work = Some(Work::new(welcome.run, assignment, stage));
                self.send(&Message::Ready { epoch }, &[]).await?;
                self.tell(SessionEvent::Training { epoch, hops });
                Ok(())
            }
            Err(e) => self.fault(epoch, FaultKind::Weights, e.to_string()).await,
        }
    }

    // --- block mode ------------------------------------------------------------------------------

    /// The windows of what was asked for are there: begin.
    async fn windows(&mut self, frame: &TensorFrame, payload: &[u8]) -> Result<(), Stop> {
        let (Some(welcome), Some(device)) = (self.welcome.clone(), self.device.clone()) else {
            return Ok(());
        };
        let run = &welcome.run;
        match self.asked.take() {
            Some(Asked::Round(round)) => {
                let (number, block) = (round.round, round.block);
                let steps = round.learning_rates.len() as u32;
                let wanted = [steps, run.sequences, run.context + 1];
                let windows = match replica::windows(&frame.tensor, payload, &wanted) {
                    Ok(windows) => windows,
                    Err(e) => return self.fail_round(number, &e).await,
                };
                self.tell(SessionEvent::BlockLoading { round: number, block });
                let began = self.host.clock.now();
                let files = self.files(&welcome.token, &[round.base, round.table]).await?;
                let seconds = self.host.clock.now() - began;
                match RoundWork::begin(run, round, windows, &files, &device, self.lent.bench).await {
                    Ok(mut work) => {
                        work.timings.receive = seconds;
                        self.round = Some(work);
                        Ok(())
                    }
                    Err(e) => self.fail_round(number, &e).await,
                }
            }
            Some(Asked::Evaluate(task)) => {
                let wanted = [run.sequences, run.context + 1];
                let windows = match replica::windows(&frame.tensor, payload, &wanted) {
                    Ok(windows) => windows,
                    Err(e) => return self.fail_round(task.round, &e).await,
                };
                self.tell(SessionEvent::Evaluating { round: task.round });
                let blobs: Vec<BlobRef> = task.blocks.iter().copied().chain([task.table]).collect();
                let files = self.files(&welcome.token, &blobs).await?;
                self.host.clock.breathe().await;
                let breathe = async || self.host.clock.breathe().await;
                match replica::measure(run, &task, &windows, &files, &device, breathe).await {
                    Ok(scores) => {
                        let (round, batch) = (task.round, task.batch);
                        self.send(&Message::Evaluated(Evaluated { round, batch, scores }), &[]).await
                    }
                    Err(e) => self.fail_round(task.round, &e).await,
                }
            }
            None => Ok(()),
        }
    }

    /// The weights of a round, fetched unless they are there from before.
    async fn files(&mut self, token: &str, blobs: &[BlobRef]) -> Result<Vec<Rc<Vec<u8>>>, Stop> {
        let mut files = Vec::with_capacity(blobs.len());
        for blob in blobs {
            let bytes = match self.lent.bench.file(*blob) {
                Some(bytes) => bytes,
                None => {
                    let bytes = Rc::new(transfer::fetch(&self.host.blobs, token, *blob).await?);
                    self.received.set(self.received.get() + blob.bytes);
                    bytes
                }
            };
            files.push((*blob, bytes));
        }
        self.lent.bench.keep(&files);
        Ok(files.into_iter().map(|(_, bytes)| bytes).collect())
    }

    /// One local step; after the last, send what was learned.
    async fn local_step(&mut self) -> Result<(), Stop> {
        let Some(mut work) = self.round.take() else { return Ok(()) };
        let (round, block) = (work.round.round, work.round.block);
        let began = self.host.clock.now();
        match work.step(self.lent.bench).await {
            Ok(Some(score)) => {
                let seconds = self.host.clock.now() - began;
                // About two thirds of a step are the way back.
                work.timings.forward += seconds / 3.0;
                work.timings.backward += seconds * 2.0 / 3.0;
                let (step, steps) = (work.steps_done(), work.steps());
                let cross_entropy = score.cross_entropy;
                self.tell(SessionEvent::LocalStep { round, block, step, steps, cross_entropy });
                self.round = Some(work);
                Ok(())
            }
            Ok(None) => {
                let bytes = match work.delta(self.lent.bench).await {
                    Ok(bytes) => bytes,
                    Err(e) => return self.fail_round(round, &e).await,
                };
                let Some(token) = self.welcome.as_ref().map(|welcome| welcome.token.clone()) else {
                    return Ok(());
                };
                let blob = BlobRef::of(&bytes);
                let began = self.host.clock.now();
                transfer::store(&self.host.blobs, &token, blob, &bytes).await?;
                self.sent.set(self.sent.get() + blob.bytes);
                work.timings.send = self.host.clock.now() - began;
                let score = work.mean_score();
                let ready = DeltaReady {
                    round,
                    block,
                    blob,
                    loss: score.loss as f32,
                    cross_entropy: score.cross_entropy as f32,
                    timings: work.timings,
                    vitals: (self.host.vitals)(),
                };
                self.send(&Message::DeltaReady(ready), &[]).await?;
                self.tell(SessionEvent::DeltaSent {
                    round,
                    block,
                    timings: work.timings,
                    bytes_sent: self.sent.get(),
                    bytes_received: self.received.get(),
                });
                Ok(())
            }
            Err(e) => self.fail_round(round, &e).await,
        }
    }

    /// Tell the coordinator what went wrong, and wait for the next round.
    async fn fail_round(&mut self, round: u64, error: &ReplicaError) -> Result<(), Stop> {
        self.round = None;
        self.lent.bench.clear();
        let kind = match error {
            ReplicaError::Block(BlockError::Stage(StageError::NotFinite { .. })) => FaultKind::NotFinite,
            // Not finite either: a delta is made of what was trained.
            ReplicaError::Delta(_) => FaultKind::NotFinite,
            ReplicaError::Block(BlockError::Stage(StageError::Device(_))) => FaultKind::Device,
            ReplicaError::Block(_) => FaultKind::Weights,
            ReplicaError::Codec(_) | ReplicaError::Shape { .. } => FaultKind::BadTensor,
        };
        self.fault(round, kind, error.to_string()).await
    }

    async fn fetch(&self, token: &str, part: BlobRef) -> Result<Rc<Vec<u8>>, Stop> {
        match self.lent.kept.get(part.hash) {
            Some(bytes) => Ok(bytes),
            None => Ok(Rc::new(transfer::fetch(&self.host.blobs, token, part).await?)),
        }
    }

    fn upload(&mut self, epoch: u64, steps_done: u64, bytes: Vec<u8>) {
        let Some(welcome) = &self.welcome else { return };
        let (blob, token, host) = (BlobRef::of(&bytes), welcome.token.clone(), self.host);
        let bytes = Rc::new(bytes);
        self.lent.kept.keep(steps_done, blob.hash, bytes.clone());
        self.uploads.push(Box::pin(async move {
            transfer::store(&host.blobs, &token, blob, &bytes).await?;
            Ok(SnapshotReady { epoch, steps_done, blob })
        }));
    }

    /// Tell the coordinator what went wrong with the stage, and wait for its decision.
    async fn fail(&mut self, error: WorkError) -> Result<(), Stop> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let kind = match &error {
            WorkError::Stage(StageError::NotFinite { .. }) => FaultKind::NotFinite,
            WorkError::Codec(protocol::tensor::CodecError::NotFinite { .. }) => FaultKind::NotFinite,
            WorkError::Codec(_) | WorkError::Shape { .. } | WorkError::Schedule(_) => FaultKind::BadTensor,
            WorkError::Stage(StageError::Token { .. } | StageError::Length { .. }) => FaultKind::BadTensor,
            WorkError::Stage(_) => FaultKind::Device,
        };
        self.fault(work.epoch(), kind, error.to_string()).await
    }

    async fn fault(&mut self, epoch: u64, kind: FaultKind, detail: String) -> Result<(), Stop> {
        self.work = None;
        let detail = shorten(&detail, SENTENCE);
        self.send(&Message::Fault(Fault { epoch, kind, detail }), &[]).await?;
        self.tell(SessionEvent::Spare);
        Ok(())
    }
}

/// Keep the lease alive, whatever the session is busy with. Ends only when the connection is lost.
async fn beat<N: Network, C: Clock, B>(
    host: &Host<N, C, B>,
    transport: &N::Transport,
    seconds: &Cell<f64>,
) -> Stop {
    let Ok(heartbeat) = frame::encode(&Message::Heartbeat, &[]) else {
        return Stop::Lost("a heartbeat could not be written".into());
    };
    debug_assert_eq!(heartbeat[0], VERSION);
    loop {
        host.clock.sleep(seconds.get()).await;
        if let Err(e) = transport.send(heartbeat.clone()).await {
            return e.into();
        }
    }
}
