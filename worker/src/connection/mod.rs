//! One connection to the coordinator: the handshake, then frames in and work out.
//!
//! [`run`] does its work, listens, renews the lease and waits for the wish to leave, side by side, until one of them ends
//! it. So a transfer or a long wait stops when the connection is lost, and when the person leaves. Between any two units
//! of computing the connection looks at what has arrived.

mod block;
mod measure;
mod pipeline;

use std::pin::Pin;

use engine::Device;
use futures::{FutureExt, StreamExt, future::Fuse, pin_mut, select_biased, stream::FuturesUnordered};
use protocol::{
    frame::{self, Frame},
    limits::{SENTENCE, shorten},
    message::{DeltaReady, Down, Fault, Header, Hello, Leaving, Refuse, SnapshotReady, ToWorker, Welcome},
    tab::SessionEvent,
};

use crate::{
    block_task::BlockTask,
    checks::check_run,
    error::{End, Stop, TaskError},
    leave::Leave,
    line::Line,
    pipeline_task::PipelineTask,
    platform::{Blobs, Clock, Network, Platform, Reporter, Transport, seconds_since, within},
    session_state::SessionState,
    transfer::TransferError,
};

/// Seconds to wait for the coordinator's answer to Hello.
const WELCOME_SECONDS: f64 = 20.0;
/// Seconds to say goodbye in.
const FAREWELL_SECONDS: f64 = 1.0;

/// A transfer in the background, and what to say once it is done.
type Upload<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransferError>> + 'a>>;

/// A connection after the coordinator's welcome.
struct Connection<'a, N: Network, C, B, R> {
    platform: &'a Platform<N, C, B, R>,
    line: &'a Line<'a, N::Transport>,
    state: &'a mut SessionState,
    welcome: Welcome,
    /// None before the device was measured.
    device: Option<Device>,
    /// Pipeline mode: the stage held.
    pipeline: Option<PipelineTask>,
    /// Pipeline mode: the stage of a plan that has ended, where the next plan may ask for the same.
    ended: Option<PipelineTask>,
    /// Pipeline mode: parts of snapshots on their way to the store.
    snapshots: FuturesUnordered<Upload<'a, SnapshotReady>>,
    /// Block mode: the round in progress.
    block: Option<BlockTask>,
    /// Block mode: the latest round that was begun; earlier ones are not begun again.
    latest_round: Option<u64>,
    /// Block mode: a delta on its way to the store.
    delta: Fuse<Upload<'a, DeltaReady>>,
}

/// What there is to do after waiting.
enum Woken {
    Frame(Vec<u8>),
    Snapshot(Result<SnapshotReady, TransferError>),
    Delta(Result<DeltaReady, TransferError>),
}

/// Says hello over a connection that was opened, and works until it ends.
pub(crate) async fn run<N: Network, C: Clock, B: Blobs, R: Reporter>(
    platform: &Platform<N, C, B, R>,
    transport: &N::Transport,
    state: &mut SessionState,
    leave: &Leave,
    hello: Hello,
) -> Stop {
    let line = Line::new(transport);
    let stop = {
        let asked = leave.asked().fuse();
        let work = work(platform, &line, state, hello).fuse();
        let listen = line.listen().fuse();
        pin_mut!(asked, work, listen);
        // What has arrived is taken in before anybody asks whether it was silent.
        select_biased! {
            () = asked => Stop::End(End::Left),
            stop = listen => stop,
            stop = work => stop,
        }
    };
    match stop {
        Stop::End(End::Left) => {
            // As far as the time allows: the coordinator notices a closed connection too.
            let farewell = async {
                if line.say(Leaving { reason: "left by its own choice".into() }).await.is_ok() {
                    line.finish().await;
                }
            };
            within(&platform.clock, FAREWELL_SECONDS, farewell).await;
            Stop::End(End::Left)
        }
        Stop::Lost(reason) => line.last_word().unwrap_or(Stop::Lost(reason)),
        stop => stop,
    }
}

async fn work<N: Network, C: Clock, B: Blobs, R: Reporter>(
    platform: &Platform<N, C, B, R>,
    line: &Line<'_, N::Transport>,
    state: &mut SessionState,
    hello: Hello,
) -> Stop {
    let welcome = match within(&platform.clock, WELCOME_SECONDS, handshake(line, hello)).await {
        Some(Ok(welcome)) => welcome,
        Some(Err(stop)) => return stop,
        None => return Stop::Lost("the coordinator did not answer".into()),
    };
    if let Err(words) = check_run(&welcome.run) {
        return Stop::failed(format!("this run cannot be trained: {words}"));
    }
    state.block.joined(&welcome.run);
    platform.reporter.tell(SessionEvent::Welcomed { worker: welcome.worker, run: welcome.run.clone() });
    let renewal = welcome.clone();
    let mut connection = Connection {
        platform,
        line,
        state,
        welcome,
        device: None,
        pipeline: None,
        ended: None,
        snapshots: FuturesUnordered::new(),
        block: None,
        latest_round: None,
        delta: Fuse::terminated(),
    };
    let turns = async {
        loop {
            if let Err(stop) = connection.turn().await {
                return stop;
            }
        }
    };
    let (turns, renew) = (turns.fuse(), line.renew(&platform.clock, &renewal).fuse());
    pin_mut!(turns, renew);
    select_biased! {
        stop = turns => stop,
        stop = renew => stop,
    }
}

async fn handshake<T: Transport>(line: &Line<'_, T>, hello: Hello) -> Result<Welcome, Stop> {
    line.say(hello).await?;
    let bytes = line.inbox.next().await;
    match read(&bytes)?.message {
        ToWorker::Down(Down::Welcome(welcome)) => Ok(welcome),
        ToWorker::Down(Down::Refuse(Refuse(refusal))) => Err(refusal.into()),
        ToWorker::Down(Down::Drain(drain)) => Err(Stop::End(End::Over(drain.reason))),
        other => Err(unexpected(&other)),
    }
}

fn read(bytes: &[u8]) -> Result<Frame<'_, ToWorker>, Stop> {
    frame::decode(bytes)
        .map_err(|error| Stop::failed(format!("the coordinator cannot be understood: {error}")))
}

fn unexpected(message: &impl Header) -> Stop {
    Stop::failed(format!("the coordinator sent {} out of turn", message.name()))
}

impl<N: Network, C: Clock, B: Blobs, R: Reporter> Connection<'_, N, C, B, R> {
    fn tell(&self, event: SessionEvent) {
        self.platform.reporter.tell(event);
    }

    /// Takes in what has arrived, then computes one thing, or waits.
    async fn turn(&mut self) -> Result<(), Stop> {
        while let Some(bytes) = self.line.inbox.pop() {
            self.take(&bytes).await?;
        }
        if let Some(Some(done)) = self.snapshots.next().now_or_never() {
            self.snapshot_stored(done).await?;
        }
        if let Some(done) = (&mut self.delta).now_or_never() {
            self.delta_stored(done).await?;
        }
        if self.pipeline_pass().await? || self.local_step().await? {
            self.platform.clock.yield_now().await;
            return Ok(());
        }
        let began = self.platform.clock.now();
        let woken = self.wait().await;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.timings.wait += seconds_since(&self.platform.clock, began);
        }
        match woken {
            Woken::Frame(bytes) => self.take(&bytes).await,
            Woken::Snapshot(done) => self.snapshot_stored(done).await,
            Woken::Delta(done) => self.delta_stored(done).await,
        }
    }

    async fn wait(&mut self) -> Woken {
        let frame = self.line.inbox.next().fuse();
        pin_mut!(frame);
        // In a fixed order: under a virtual clock a run must not depend on chance that nobody has seeded.
        select_biased! {
            bytes = frame => Woken::Frame(bytes),
            done = self.snapshots.select_next_some() => Woken::Snapshot(done),
            done = &mut self.delta => Woken::Delta(done),
        }
    }

    /// Takes a frame in and does what it says.
    async fn take(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let Frame { message, payload } = read(bytes)?;
        let down = match message {
            ToWorker::Relayed(relayed) => {
                return self.arrived(|task| task.relayed(&relayed, payload)).await;
            }
            ToWorker::Down(down) => down,
        };
        match down {
            Down::Refuse(Refuse(refusal)) => Err(refusal.into()),
            Down::Drain(drain) => Err(Stop::End(End::Over(drain.reason))),
            Down::Benchmark(_) => self.benchmark().await,
            Down::Assign(assign) => self.assign(assign.0).await,
            Down::Tokens(tokens) => self.arrived(|task| task.tokens(&tokens, payload)).await,
            Down::Targets(targets) => self.arrived(|task| task.targets(&targets, payload)).await,
            Down::Apply(apply) => self.apply(&apply).await,
            Down::Revoke(revoke) => {
                self.revoke(revoke.epoch);
                Ok(())
            }
            Down::SnapshotKept(kept) => {
                self.state.snapshots.accepted(kept.steps_done);
                Ok(())
            }
            Down::Decode(decode) => self.decode(&decode, payload).await,
            Down::CloseTexts(close) => {
                if let Some(task) = &mut self.pipeline {
                    task.close_texts(&close);
                }
                Ok(())
            }
            Down::Round(round) => self.round(round, payload).await,
            Down::Evaluate(evaluate) => self.evaluate(evaluate, payload).await,
            Down::DeltaOutcome(outcome) => {
                if self.state.block.outcome(&outcome) {
                    let (round, refused) = (outcome.round, outcome.refused);
                    self.tell(SessionEvent::DeltaOutcome { round, refused });
                }
                Ok(())
            }
            // That it was heard is all that counts; a probe's answer is late here.
            Down::HeartbeatAnswer(_) | Down::ProbeAnswer(_) => Ok(()),
            Down::Welcome(_) => Err(unexpected(&down)),
        }
    }

    /// Tells the coordinator what went wrong in an epoch or round, and waits for its decision.
    async fn fault(&mut self, during: u64, error: &TaskError) -> Result<(), Stop> {
        let detail = shorten(&error.to_string(), SENTENCE);
        self.line.say(Fault { during, kind: error.kind(), detail }).await?;
        self.tell(SessionEvent::Spare);
        Ok(())
    }
}
