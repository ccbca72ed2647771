//! Runs the machine: takes events from the queue and does what it says.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Bytes;
use protocol::{
    frame,
    message::{Address, Message, Pass, TensorFrame},
    tensor::{CodecError, encode_tokens},
    view::{CurvePoint, Phase},
};
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::{interval, sleep_until},
};

use super::{Shared, hub::Outgoing, rounds::Rounds};
use crate::{
    data::{
        tokenizer::SavedTokenizer,
        windows::{Batch, TrainWindows, ValidationWindows},
    },
    mode::Mode,
    run::{
        event::{Action, Event, Half, WorkerId},
        snapshot::Manifest,
    },
    storage::{checkpoint, data_dir::DataDir, event_log::EventLog, snapshots},
};

/// How often leases are looked at.
const TICK: Duration = Duration::from_secs(1);
/// How often the pages hear of changes, at most ...
const VIEW: Duration = Duration::from_millis(250);
/// ... and this many times as long as it takes to write them down: with thousands of workers that is work.
const VIEW_COST: u32 = 50;

/// Everything an action may need.
pub struct Actor {
    pub machine: Mode,
    pub shared: Arc<Shared>,
    pub events: mpsc::Receiver<Event>,
    pub train: TrainWindows,
    /// None where the held-out split is never measured.
    pub validation: Option<ValidationWindows>,
    pub log: EventLog,
    pub data_dir: DataDir,
    pub keep: usize,
    pub tokenizer: SavedTokenizer,
    /// Block mode only.
    pub rounds: Option<Rounds>,
    pub view: watch::Sender<String>,
    pub curve: watch::Sender<Arc<Vec<CurvePoint>>>,
    pub points: broadcast::Sender<String>,
}

/// How a run came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub phase: Phase,
    pub checkpoint: Option<PathBuf>,
}

impl Actor {
    /// Run until the process is told to end. `over` hears once when the run has ended.
    pub async fn run(mut self, over: tokio::sync::oneshot::Sender<Ending>) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut over = Some(over);
        let mut dirty = true;
        let mut ticks = interval(TICK);
        let mut next_view = tokio::time::Instant::now();
        loop {
            let wake = self.machine.wake_at().map(|at| tokio::time::Instant::from_std(began + at));
            let event = tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => event,
                    None => return Ok(()),
                },
                _ = ticks.tick() => Event::Tick,
                () = sleep_until(wake.unwrap_or(next_view)), if wake.is_some() => Event::Tick,
                () = sleep_until(next_view), if dirty => {
                    dirty = false;
                    let start = tokio::time::Instant::now();
                    self.publish_view(began.elapsed())?;
                    next_view = start + VIEW.max(start.elapsed() * VIEW_COST);
                    continue;
                }
            };
            dirty = true;
            for action in self.machine.handle(began.elapsed(), event) {
                self.act(action).await?;
            }
            if matches!(self.machine.phase(), Phase::Finished | Phase::Stopped)
                && let Some(over) = over.take()
            {
                self.publish_view(began.elapsed())?;
                let checkpoint = checkpoint::list(&self.data_dir.checkpoints())?.pop();
                let _ = over.send(Ending { phase: self.machine.phase(), checkpoint });
            }
        }
    }

    fn publish_view(&self, now: Duration) -> anyhow::Result<()> {
        self.view.send_replace(serde_json::to_string(&self.machine.view(now))?);
        Ok(())
    }

    async fn act(&mut self, action: Action) -> anyhow::Result<()> {
        match action {
            Action::Send { worker, message } => self.send(worker, &message, &[])?,
            Action::SendBatch { worker, to, half } => {
                let (tensor, payload) = self.windows(to, half)?;
                let frame = TensorFrame { to, tensor };
                let message = match half {
                    Half::Inputs => Message::Tokens(frame),
                    Half::Targets => Message::Targets(frame),
                };
                self.send(worker, &message, &payload)?;
            }
            Action::Route(relay) => self.shared.hub.route(relay),
            Action::OpenStep { step } => self.shared.hub.open_step(step),
            Action::Close { worker, refusal } => {
                tracing::warn!(%worker, "turned away: {refusal}");
                self.shared.hub.send(worker, Outgoing::Close(refusal));
            }
            Action::Commit(manifest) => self.commit(manifest),
            Action::Prune { accepted } => self.prune(accepted),
            Action::Record(record) => {
                tracing::debug!(?record, "recorded");
                self.log.append(record);
            }
            Action::SendWindows { worker, windows } => {
                let Some(rounds) = &mut self.rounds else { return Ok(()) };
                let cut = rounds.cut(&mut self.train, self.validation.as_ref(), windows)?;
                if let Some((message, payload)) = cut {
                    self.send(worker, &message, &payload)?;
                }
            }
            Action::CheckDelta { .. } | Action::Average { .. } | Action::Evaluate { .. } => {
                if let Some(rounds) = &self.rounds {
                    rounds.order(action, self.validation.as_ref());
                }
            }
            Action::Point(point) => {
                let _ = self.points.send(serde_json::to_string(&[&point])?);
                self.curve.send_replace(Arc::new(self.machine.curve().to_vec()));
            }
        }
        Ok(())
    }

    fn send(&self, worker: WorkerId, message: &Message, payload: &[u8]) -> anyhow::Result<()> {
        let bytes: Bytes = frame::encode(message, payload)?.into();
        self.shared.hub.send(worker, Outgoing::Frame(bytes));
        Ok(())
    }

    /// The token windows of a pass, encoded.
    fn windows(
        &mut self,
        to: Address,
        half: Half,
    ) -> Result<(protocol::tensor::TensorMeta, Vec<u8>), CodecError> {
        self.train.set_micro_batches(self.machine.micro_batches());
        let shape = self.train.shape();
        let Batch { inputs, targets } = match (to.pass, &self.validation) {
            (Pass::Train { micro_batch }, _) => self.train.batch(to.step, micro_batch),
            (Pass::Validate { batch }, Some(validation)) => validation.batch(u64::from(batch)),
            (Pass::Validate { .. }, None) => Batch { inputs: vec![], targets: vec![] },
        };
        let tokens = match half {
            Half::Inputs => inputs,
            Half::Targets => targets,
        };
        encode_tokens(&tokens, &[shape.sequences, shape.context])
    }

    /// Write the checkpoint and then the manifest, off this thread; the machine hears when it is done.
    fn commit(&self, manifest: Manifest) {
        let shared = self.shared.clone();
        let (data_dir, keep, tokenizer) = (self.data_dir.clone(), self.keep, self.tokenizer.clone());
        tokio::spawn(async move {
            let steps_done = manifest.steps_done;
            let event = match write_snapshot(&shared, data_dir, keep, tokenizer, manifest).await {
                Ok(state) => Event::Committed { steps_done, state },
                Err(e) => {
                    tracing::error!("the snapshot of step {steps_done} could not be kept: {e:#}");
                    Event::CommitFailed { steps_done, why: format!("{e:#}") }
                }
            };
            let _ = shared.events.send(event).await;
        });
    }

    /// Forget old snapshots, off this thread. What cannot be removed only takes up room.
    fn prune(&self, accepted: u64) {
        let (shared, folder, keep) = (self.shared.clone(), self.data_dir.snapshots(), self.keep);
        tokio::spawn(async move {
            let pruned = async {
                let prune = move || snapshots::prune(&folder, keep, accepted);
                for blob in tokio::task::spawn_blocking(prune).await?? {
                    shared.blobs.delete(blob).await?;
                }
                anyhow::Ok(())
            };
            if let Err(e) = pruned.await {
                tracing::warn!("old snapshots could not be removed: {e:#}");
            }
        });
    }
}

async fn write_snapshot(
    shared: &Shared,
    data_dir: DataDir,
    keep: usize,
    tokenizer: SavedTokenizer,
    manifest: Manifest,
) -> anyhow::Result<String> {
    let mut parts = Vec::with_capacity(manifest.parts.len());
    for part in &manifest.parts {
        parts.push(shared.blobs.fetch(part.blob).await?);
    }
    tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
        let mut manifest = manifest;
        manifest.state = engine::checkpoint::state_hash(&parts)?.to_string();
        let place = checkpoint::export(
            &data_dir.checkpoints(),
            manifest.steps_done,
            &manifest.model,
            &parts,
            &tokenizer,
            keep,
        )?;
        tracing::info!("checkpoint {}", place.display());
        snapshots::write(&data_dir.snapshots(), &manifest)?;
        Ok(manifest.state)
    })
    .await?
}
