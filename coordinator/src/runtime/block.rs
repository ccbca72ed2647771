//! The IO of block mode: deltas from the store to the keeper, weights from the keeper to the store, evaluations on a
//! thread of their own.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use axum::body::Bytes;
use protocol::{
    message::{Address, Message, Pass, TensorFrame},
    tensor::encode_tokens,
};
use tokio::{runtime::Handle, sync::mpsc};

use super::{BlobStore, Shared};
use crate::{
    data::{
        tokenizer::SavedTokenizer,
        windows::{TrainWindows, ValidationWindows},
    },
    rounds::{DeltaRefusal, Keeper, Published, RoundManifest, evaluation, local_steps, windows},
    run::event::{Action, Event, Windows},
    storage::{checkpoint, data_dir::DataDir, rounds},
};

/// Blobs that nothing names are deleted after this long; uploads under way are younger.
const LEFTOVER: Duration = Duration::from_secs(3600);

/// What block mode needs of a run.
#[derive(Clone)]
pub struct RoundsSetup {
    pub data_dir: DataDir,
    pub tokenizer: SavedTokenizer,
    /// Manifests and checkpoints to keep.
    pub keep: usize,
    pub seed: u64,
    /// K of evaluations.
    pub draws: u32,
    /// H.
    pub local_steps: u32,
    /// Local steps of the whole run.
    pub steps: u64,
    /// Replicas that may be at work at a time.
    pub slots: u32,
}

/// The way to the thread that holds the keeper.
pub struct Rounds {
    setup: RoundsSetup,
    shared: Arc<Shared>,
    orders: mpsc::UnboundedSender<Action>,
    run: protocol::spec::RunSpec,
}

/// Files of published weights to the store, and what counts them to disk.
pub async fn publish(
    blobs: &BlobStore,
    data_dir: &DataDir,
    keeper: &Keeper,
    manifest: impl FnOnce(Published) -> RoundManifest,
    round: u64,
) -> anyhow::Result<Published> {
    let files = keeper.files()?;
    let published = files.published(round);
    for file in files.all() {
        blobs.store(Bytes::from(file.clone())).await?;
    }
    rounds::write(&data_dir.snapshots(), &manifest(published.clone()))?;
    Ok(published)
}

/// The keeper of a run that goes on from a manifest; `run` as it is now, as its encoding may have been changed.
pub async fn resume(
    blobs: &BlobStore,
    manifest: &RoundManifest,
    run: &protocol::spec::RunSpec,
    rules: crate::rounds::keeper::Rules,
) -> anyhow::Result<Keeper> {
    let Published { blocks, table, outer, .. } = &manifest.published;
    let mut files = Vec::new();
    for blob in blocks.iter().chain([table]) {
        files.push(blobs.fetch(*blob).await.context("a published blob cannot be read")?);
    }
    let outer = match outer {
        Some(blob) => Some(blobs.fetch(*blob).await.context("the outer step's state cannot be read")?),
        None => None,
    };
    Ok(Keeper::resume(run, &files, outer.as_deref(), rules)?)
}

impl Rounds {
    /// Start the keeper's thread. It ends when this is dropped.
    pub fn start(keeper: Keeper, setup: RoundsSetup, shared: Arc<Shared>) -> anyhow::Result<Rounds> {
        let (orders, queue) = mpsc::unbounded_channel();
        let run = keeper.run().clone();
        let work = Worker { keeper, setup: setup.clone(), shared: shared.clone() };
        let handle = Handle::current();
        std::thread::Builder::new().name("keeper".into()).spawn(move || handle.block_on(work.run(queue)))?;
        Ok(Rounds { setup, shared, orders, run })
    }

    /// Windows as a message; None where there are none to cut.
    pub fn cut(
        &mut self,
        train: &mut TrainWindows,
        validation: Option<&ValidationWindows>,
        of: Windows,
    ) -> anyhow::Result<Option<(Message, Vec<u8>)>> {
        let shape = train.shape();
        let (to, tokens, steps) = match of {
            Windows::Round { round, block, slot } => {
                let RoundsSetup { local_steps, slots, steps, .. } = self.setup;
                let range = local_steps::of_round(round, local_steps, steps);
                let (first, count) = (range.start, (range.end - range.start) as u32);
                let tokens = windows::of_round(train, round, slot, count, local_steps, slots);
                let pass = Pass::Train { micro_batch: slot };
                (Address { epoch: round, step: first, pass, hop: block }, tokens, Some(count))
            }
            Windows::Evaluation { round, batch } => {
                let Some(validation) = validation else { return Ok(None) };
                let tokens = windows::whole(&validation.batch(u64::from(batch)), shape);
                let pass = Pass::Validate { batch };
                (Address { epoch: round, step: 0, pass, hop: 0 }, tokens, None)
            }
        };
        let window = [shape.sequences, shape.context + 1];
        let (tensor, payload) = match steps {
            Some(steps) => encode_tokens(&tokens, &[steps, window[0], window[1]])?,
            None => encode_tokens(&tokens, &window)?,
        };
        Ok(Some((Message::Tokens(TensorFrame { to, tensor }), payload)))
    }

    /// Have an action done; the machine hears of it.
    pub fn order(&self, action: Action, validation: Option<&ValidationWindows>) {
        match action {
            Action::Evaluate { published, batches } => {
                let Some(validation) = validation.cloned() else { return };
                let shared = self.shared.clone();
                let run = self.run.clone();
                let (seed, draws) = (self.setup.seed, self.setup.draws);
                tokio::spawn(async move {
                    let round = published.round;
                    let files = fetch(&shared, &published).await;
                    for batch in batches {
                        let outcome = match &files {
                            Ok(files) => {
                                let (files, run, validation) =
                                    (files.clone(), run.clone(), validation.clone());
                                let measured = tokio::task::spawn_blocking(move || {
                                    evaluation::measure(&run, &files, &validation, batch, seed, draws)
                                });
                                match measured.await {
                                    Ok(scores) => scores.map_err(|error| format!("{error:#}")),
                                    Err(error) => Err(error.to_string()),
                                }
                            }
                            Err(error) => Err(format!("{error:#}")),
                        };
                        let _ = shared.events.send(Event::Evaluated { round, batch, outcome }).await;
                    }
                });
            }
            action => {
                let _ = self.orders.send(action);
            }
        }
    }
}

async fn fetch(shared: &Shared, published: &Published) -> anyhow::Result<Vec<Bytes>> {
    let mut files = Vec::new();
    for blob in published.blocks.iter().chain([&published.table]) {
        files.push(shared.blobs.fetch(*blob).await?);
    }
    Ok(files)
}

/// Does one order after the other, on the keeper's thread.
struct Worker {
    keeper: Keeper,
    setup: RoundsSetup,
    shared: Arc<Shared>,
}

impl Worker {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Action>) {
        while let Some(order) = orders.recv().await {
            let event = match order {
                Action::CheckDelta { worker, block, published, blob } => {
                    let outcome = match self.shared.blobs.length(blob.hash).await {
                        Ok(Some(bytes)) if bytes == blob.bytes => match self.shared.blobs.fetch(blob).await {
                            Ok(bytes) => self.keeper.check(worker, block, &published, &bytes),
                            Err(error) => Err(DeltaRefusal::Unreadable { why: error.to_string() }),
                        },
                        Ok(Some(bytes)) => {
                            let why = format!("it has {bytes} bytes there, {} were announced", blob.bytes);
                            Err(DeltaRefusal::Unreadable { why })
                        }
                        Ok(None) => Err(DeltaRefusal::Unreadable { why: "there is no such blob".into() }),
                        Err(error) => Err(DeltaRefusal::Unreadable { why: error.to_string() }),
                    };
                    let traffic = self.shared.hub.take_traffic(worker);
                    Event::DeltaChecked { worker, round: published.round, outcome, traffic }
                }
                Action::Average { round, work, updates, totals, checkpoint } => {
                    let next = round + 1;
                    match self.average(next, work, updates, totals, checkpoint).await {
                        Ok(event) => event,
                        Err(error) => {
                            tracing::error!("round {next} could not be kept: {error:#}");
                            Event::AverageFailed { round: next, why: format!("{error:#}") }
                        }
                    }
                }
                _ => continue,
            };
            if self.shared.events.send(event).await.is_err() {
                return;
            }
        }
    }

    async fn average(
        &mut self,
        round: u64,
        work: Vec<crate::rounds::manifest::Work>,
        mut updates: Vec<u64>,
        mut totals: crate::rounds::manifest::Totals,
        checkpoint: bool,
    ) -> anyhow::Result<Event> {
        let accepted: Vec<_> = work.iter().map(|work| work.worker).collect();
        let averaged = self.keeper.average(&accepted)?;
        let dropped = |worker| averaged.dropped.iter().any(|(dropped, _)| *dropped == worker);
        updates.iter_mut().zip(&averaged.updated).for_each(|(count, updated)| *count += u64::from(*updated));
        totals.accepted -= averaged.dropped.len() as u64;
        totals.refused += averaged.dropped.len() as u64;
        let manifest = |published| RoundManifest {
            run: self.keeper.run().clone(),
            published,
            updates,
            totals,
            work: work.into_iter().filter(|work| !dropped(work.worker)).collect(),
        };
        let published =
            publish(&self.shared.blobs, &self.setup.data_dir, &self.keeper, manifest, round).await?;
        if checkpoint {
            let steps = local_steps::done(round, self.setup.local_steps, self.setup.steps);
            let place = checkpoint::write(
                &self.setup.data_dir.checkpoints(),
                steps,
                &(serde_json::to_string_pretty(self.keeper.run())? + "\n"),
                &self.keeper.weights().whole_file()?,
                &self.setup.tokenizer,
                self.setup.keep,
            )?;
            tracing::info!("checkpoint {}", place.display());
        }
        self.prune().await;
        Ok(Event::Averaged { published, averaged })
    }

    /// Forget old rounds. What cannot be removed only takes up room.
    async fn prune(&self) {
        let pruned = async {
            let (unnamed, named) = rounds::prune(&self.setup.data_dir.snapshots(), self.setup.keep)?;
            for blob in unnamed {
                self.shared.blobs.delete(blob).await?;
            }
            self.shared.blobs.sweep(&named, LEFTOVER).await?;
            anyhow::Ok(())
        };
        if let Err(e) = pruned.await {
            tracing::warn!("old rounds could not be removed: {e:#}");
        }
    }
}
