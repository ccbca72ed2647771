//! What block mode alone has done: rounds sent, deltas fetched for the aggregation server, weights published, and
//! evaluations on threads of their own.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::body::Bytes;
use control::{
    Run,
    block::{Action, Block, Event, RoundManifest, Totals, Work, local_steps},
};
use engine::{
    aggregation::server::{Averaged, Rules, Server},
    denoiser::evaluate::measure,
};
use protocol::{
    blob::{BlobHash, BlobRef},
    delta::DeltaRefusal,
    evaluation::Scores,
    message::{Evaluate, EvaluationTask, Round, RoundTask},
    published::Published,
    spec::RunSpec,
    tensor::encode_tokens,
    worker_id::WorkerId,
};
use tokio::{runtime::Handle, sync::mpsc};
use tracing::Instrument;

use super::interpreter::{ModeIo, send};
use crate::{
    data::{
        block_windows,
        tokenizer::SavedTokenizer,
        windows::{TrainWindows, ValidationWindows},
    },
    server::Shared,
    storage::{blob_store::BlobStore, checkpoint, data_dir::DataDir, rounds},
};

/// Blobs that nothing names are deleted after this long; uploads under way are younger.
const LEFTOVER: Duration = Duration::from_hours(1);

/// What block mode's IO needs of a run.
#[derive(Clone)]
pub(crate) struct BlockSetup {
    pub(crate) data_dir: DataDir,
    pub(crate) tokenizer: SavedTokenizer,
    /// Manifests and checkpoints to keep.
    pub(crate) keep: usize,
    /// H.
    pub(crate) local_steps: u32,
    /// Local steps of the whole run.
    pub(crate) steps: u64,
    /// Replicas that may be at work at a time.
    pub(crate) slots: u32,
    /// Of the run: evaluations draw their noise from it.
    pub(crate) seed: u64,
    /// K of evaluations.
    pub(crate) draws: u32,
}

/// The IO of block mode.
pub(crate) struct BlockIo {
    setup: BlockSetup,
    shared: Arc<Shared>,
    told: mpsc::UnboundedSender<Event>,
    run: RunSpec,
    train: TrainWindows,
    validation: Option<ValidationWindows>,
    orders: mpsc::UnboundedSender<Order>,
    /// Number and span of the round in progress: what is done for it is logged within.
    round: (u64, tracing::Span),
}

/// What the aggregation server is asked for.
enum Order {
    Check { worker: WorkerId, block: u32, published: Published, blob: BlobRef },
    Average { round: u64, work: Vec<Work>, updates: Vec<u64>, totals: Totals, checkpoint: bool },
}

/// Puts the files of the published weights into the store, and then the manifest that makes them count on disk.
pub(crate) async fn publish(
    blobs: &BlobStore,
    data_dir: &DataDir,
    server: &Server,
    manifest: impl FnOnce(Published) -> RoundManifest,
    round: u64,
) -> anyhow::Result<Published> {
    let files = server.files()?;
    let published = files.published(round);
    for file in files.all() {
        blobs.store(Bytes::from(file.clone())).await?;
    }
    rounds::write(&data_dir.snapshots(), &manifest(published.clone()))?;
    Ok(published)
}

/// The aggregation server of a run that goes on from a manifest; `run` as it is now, as its encoding may have changed.
pub(crate) async fn resume(
    blobs: &BlobStore,
    manifest: &RoundManifest,
    run: &RunSpec,
    rules: Rules,
) -> anyhow::Result<Server> {
    let mut files = Vec::new();
    for blob in manifest.published.weights() {
        files.push(blobs.fetch(blob).await.context("a published blob cannot be read")?);
    }
    let outer = match manifest.published.outer {
        Some(blob) => Some(blobs.fetch(blob).await.context("the outer step's state cannot be read")?),
        None => None,
    };
    Ok(Server::resume(run, &files, outer.as_deref(), rules)?)
}

impl BlockIo {
    /// Starts the aggregation server's thread, which ends when this is dropped.
    pub(crate) fn start(
        server: Server,
        setup: BlockSetup,
        shared: Arc<Shared>,
        told: mpsc::UnboundedSender<Event>,
        train: TrainWindows,
        validation: Option<ValidationWindows>,
    ) -> anyhow::Result<BlockIo> {
        let (orders, queue) = mpsc::unbounded_channel();
        let run = server.run().clone();
        let thread = Aggregation {
            server,
            setup: setup.clone(),
            shared: shared.clone(),
            told: told.clone(),
            unpublished: None,
        };
        let handle = Handle::current();
        std::thread::Builder::new()
            .name("aggregation".into())
            .spawn(move || handle.block_on(thread.run(queue)))?;
        Ok(BlockIo {
            setup,
            shared,
            told,
            run,
            train,
            validation,
            orders,
            round: (u64::MAX, tracing::Span::none()),
        })
    }

    fn send_round(&mut self, worker: WorkerId, task: RoundTask, slot: u32) -> anyhow::Result<()> {
        if self.round.0 != task.round {
            self.round = (task.round, tracing::info_span!(parent: None, "round", round = task.round));
        }
        let _within = self.round.1.clone().entered();
        tracing::debug!(%worker, block = task.block, "sent");
        let BlockSetup { local_steps, slots, steps, .. } = self.setup;
        let range = local_steps::of_round(task.round, local_steps, steps);
        let count = (range.end - range.start) as u32;
        let tokens = block_windows::of_round(&mut self.train, task.round, slot, count, local_steps, slots);
        let shape = self.train.shape();
        let (windows, payload) = encode_tokens(&tokens, &[count, shape.sequences, shape.context + 1])?;
        self.shared.grant_upload(worker);
        send(&self.shared, worker, Round { task, windows }, &payload)
    }

    fn send_evaluation(&self, worker: WorkerId, task: EvaluationTask) -> anyhow::Result<()> {
        let Some(validation) = &self.validation else { return Ok(()) };
        let tokens = block_windows::whole(&validation.batch(u64::from(task.batch)), validation.shape());
        let shape = validation.shape();
        let (windows, payload) = encode_tokens(&tokens, &[shape.sequences, shape.context + 1])?;
        send(&self.shared, worker, Evaluate { task, windows }, &payload)
    }

    /// Measures published weights batch by batch; the run hears of each.
    fn evaluate(&self, published: Published, batches: Vec<u32>) {
        let Some(validation) = self.validation.clone() else { return };
        let (shared, told, run) = (self.shared.clone(), self.told.clone(), self.run.clone());
        let (seed, draws) = (self.setup.seed, self.setup.draws);
        tokio::spawn(async move {
            let round = published.round;
            let files = fetch(&shared, &published).await.map_err(|error| format!("{error:#}"));
            for batch in batches {
                let outcome = match &files {
                    Ok(files) => {
                        let (files, run, validation) = (files.clone(), run.clone(), validation.clone());
                        let measured = tokio::task::spawn_blocking(move || {
                            measure_batch(&run, &files, &validation, batch, seed, draws)
                        });
                        measured.await.unwrap_or_else(|error| Err(error.to_string()))
                    }
                    Err(words) => Err(words.clone()),
                };
                let _ = told.send(Event::Evaluated { round, batch, outcome });
            }
        });
    }
}

/// The scores of one held-out batch, computed on this thread.
pub(crate) fn measure_batch<B: AsRef<[u8]>>(
    run: &RunSpec,
    files: &[B],
    validation: &ValidationWindows,
    batch: u32,
    run_seed: u64,
    draws: u32,
) -> Result<Scores, String> {
    let windows = block_windows::whole(&validation.batch(u64::from(batch)), validation.shape());
    let seed = control::block::seeds::evaluation(run_seed, batch);
    futures::executor::block_on(measure(run, files, &windows, seed, draws)).map_err(|error| error.to_string())
}

impl ModeIo for BlockIo {
    type Mode = Block;

    fn act(&mut self, action: Action, _: &Run<Block>) -> anyhow::Result<()> {
        let order = match action {
            Action::SendRound { worker, task, slot } => return self.send_round(worker, task, slot),
            Action::SendEvaluation { worker, task } => return self.send_evaluation(worker, task),
            Action::Evaluate { published, batches } => {
                self.evaluate(published, batches);
                return Ok(());
            }
            Action::CheckDelta { worker, block, published, blob } => {
                Order::Check { worker, block, published, blob }
            }
            Action::Average { round, work, updates, totals, checkpoint } => {
                Order::Average { round, work, updates, totals, checkpoint }
            }
        };
        self.orders.send(order).map_err(|_| anyhow::anyhow!("the aggregation server has ended"))
    }
}

async fn fetch(shared: &Shared, published: &Published) -> anyhow::Result<Vec<Bytes>> {
    let mut files = Vec::new();
    for blob in published.weights() {
        files.push(shared.blobs.fetch(blob).await?);
    }
    Ok(files)
}

/// Does one order after the other, on a thread of its own.
struct Aggregation {
    server: Server,
    setup: BlockSetup,
    shared: Arc<Shared>,
    told: mpsc::UnboundedSender<Event>,
    /// A round whose deltas are averaged in the server's weights, which the disk did not take.
    unpublished: Option<(u64, Averaged)>,
}

impl Aggregation {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            let number = match &order {
                Order::Check { published, .. } => published.round,
                Order::Average { round, .. } => *round,
            };
            let span = tracing::info_span!("round", round = number);
            let event = self.obey(order).instrument(span).await;
            if self.told.send(event).is_err() {
                return;
            }
        }
    }

    async fn obey(&mut self, order: Order) -> Event {
        match order {
            Order::Check { worker, block, published, blob } => {
                let outcome = self.check(worker, block, &published, blob).await;
                let traffic = self.shared.hub.take_traffic(worker);
                Event::DeltaChecked { worker, round: published.round, outcome, traffic }
            }
            Order::Average { round, work, updates, totals, checkpoint } => {
                self.average(round, work, updates, totals, checkpoint).await
            }
        }
    }

    async fn check(
        &mut self,
        worker: WorkerId,
        block: u32,
        published: &Published,
        blob: BlobRef,
    ) -> Result<f64, DeltaRefusal> {
        let unreadable = |why: String| DeltaRefusal::Unreadable { why };
        let found =
            self.shared.blobs.length(blob.hash).await.map_err(|error| unreadable(error.to_string()))?;
        match found {
            Some(bytes) if bytes == blob.bytes => {}
            Some(bytes) => {
                return Err(unreadable(format!("it has {bytes} bytes there, {} were announced", blob.bytes)));
            }
            None => return Err(unreadable("there is no such blob".into())),
        }
        let bytes = self.shared.blobs.fetch(blob).await.map_err(|error| unreadable(error.to_string()))?;
        // One delta that breaks the checks must not take the others' with it.
        catch_unwind(AssertUnwindSafe(|| self.server.check(worker, block, published, &bytes)))
            .unwrap_or_else(|_| Err(unreadable("the checks could not finish with it".into())))
    }

    /// Averages the round's deltas, unless that was done before and only the disk refused.
    async fn average(
        &mut self,
        round: u64,
        work: Vec<Work>,
        updates: Vec<u64>,
        totals: Totals,
        checkpoint: bool,
    ) -> Event {
        let averaged = match self.unpublished.take().filter(|(of, _)| *of == round) {
            Some((_, averaged)) => averaged,
            None => {
                let accepted: Vec<WorkerId> = work.iter().map(|work| work.worker).collect();
                match self.server.average(&accepted) {
                    Ok(averaged) => averaged,
                    Err(error) => {
                        tracing::error!("the deltas of round {} cannot be averaged: {error}", round + 1);
                        return Event::AverageFailed { round, why: error.to_string(), again: false };
                    }
                }
            }
        };
        let next = round + 1;
        match self.publish(next, work, updates, totals, checkpoint, &averaged).await {
            Ok(published) => {
                self.prune().await;
                Event::Averaged { published, updated: averaged.updated, dropped: averaged.dropped }
            }
            Err(error) => {
                tracing::error!("the weights after round {next} could not be kept: {error:#}");
                self.shared.storage.failed(error.as_ref());
                self.unpublished = Some((round, averaged));
                Event::AverageFailed { round, why: format!("{error:#}"), again: true }
            }
        }
    }

    async fn publish(
        &mut self,
        round: u64,
        work: Vec<Work>,
        mut updates: Vec<u64>,
        mut totals: Totals,
        checkpoint: bool,
        averaged: &Averaged,
    ) -> anyhow::Result<Published> {
        let dropped: HashSet<WorkerId> = averaged.dropped.iter().map(|(worker, _)| *worker).collect();
        updates.iter_mut().zip(&averaged.updated).for_each(|(count, updated)| *count += u64::from(*updated));
        totals.accepted = totals.accepted.saturating_sub(dropped.len() as u64);
        totals.refused += dropped.len() as u64;
        let manifest = |published| RoundManifest {
            run: self.server.run().clone(),
            published,
            updates,
            totals,
            work: work.into_iter().filter(|work| !dropped.contains(&work.worker)).collect(),
        };
        if checkpoint {
            let steps = local_steps::done(round, self.setup.local_steps, self.setup.steps);
            let place = checkpoint::write(
                &self.setup.data_dir.checkpoints(),
                steps,
                &(serde_json::to_string_pretty(self.server.run())? + "\n"),
                &self.server.weights().whole_file()?,
                &self.setup.tokenizer,
                self.setup.keep,
            )?;
            tracing::info!("checkpoint {}", place.display());
        }
        publish(&self.shared.blobs, &self.setup.data_dir, &self.server, manifest, round).await
    }

    /// Forgets old rounds. What cannot be removed only takes up room.
    async fn prune(&self) {
        let pruned = async {
            let (unnamed, named): (Vec<BlobHash>, HashSet<BlobHash>) =
                rounds::prune(&self.setup.data_dir.snapshots(), self.setup.keep)?;
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
