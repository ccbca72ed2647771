//! The virtual coordinator's runtime in block mode.

use std::{collections::VecDeque, rc::Rc};

use control::{
    Run, Settings,
    block::{Action, Block, BlockRun, Event, RoundManifest, RoundSettings, Totals, Work},
    curve::Curve,
    record::Traffic,
};
use engine::{
    aggregation::server::{Averaged, Rules, Server, ServerError},
    denoiser::evaluate,
};
use futures::executor::block_on;
use protocol::{
    blob::{BlobHash, BlobRef},
    delta::{DeltaEncoding, DeltaRefusal},
    message::{Evaluate, EvaluationTask, Relayed, Round, RoundTask, Up},
    published::Published,
    refusal::Refusal,
    spec::RunSpec,
    tensor::encode_tokens,
    worker_id::WorkerId,
};

use crate::{
    error::SimulationError,
    harness::{Desk, Runtime},
    hostile::Hostile,
    luck::Luck,
    network::Network,
    parallel::map,
    stand_in::StandIn,
    windows::Windows,
};

/// Published weights whose files stay in the store: a slow worker may still be fetching those of a round long closed.
const ROUNDS_KEPT: usize = 16;

/// What a run of block mode is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockSetup {
    /// As in any run.
    pub settings: Settings,
    /// Of its rounds.
    pub rounds: RoundSettings,
    /// How deltas become weights.
    pub rules: Rules,
}

/// A coordinator of block mode with a disk of manifests.
pub struct BlockRuntime<W> {
    setup: BlockSetup,
    windows: W,
    server: Option<Server>,
    /// The manifests on the disk, oldest first.
    manifests: Vec<RoundManifest>,
    /// Deltas and old weights stay in the store too.
    keep_all: bool,
    /// Published weights whose files are in the store, oldest first.
    stored: VecDeque<Published>,
    /// Deltas in the store that were announced in the round.
    deltas: Vec<BlobHash>,
    /// Tiny windows and weights in place of the run's.
    dry: bool,
    pub(crate) luck: Option<Luck>,
    pub(crate) hostile: Hostile,
}

/// Weights on their way to the disk.
pub struct Publication {
    manifest: RoundManifest,
    averaged: Averaged,
}

impl<W: Windows> BlockRuntime<W> {
    /// A run from its first round.
    pub fn new(setup: BlockSetup, windows: W) -> Self {
        Self {
            setup,
            windows,
            server: None,
            manifests: vec![],
            keep_all: false,
            stored: VecDeque::new(),
            deltas: vec![],
            dry: false,
            luck: None,
            hostile: Hostile::new(0, DeltaEncoding::F32, &[]),
        }
    }

    /// Keeps every delta and all weights in the store, so that rounds can be done again from there.
    pub fn keep_all(mut self) -> Self {
        self.keep_all = true;
        self
    }

    /// Gives windows of the tiny model of a [`StandIn`].
    pub(crate) fn dry(mut self) -> Self {
        self.dry = true;
        self
    }

    /// The manifests on the disk, by round; what led to the newest.
    pub fn manifests(&self) -> &[RoundManifest] {
        &self.manifests
    }

    /// Numbers of each tensor of a block's delta.
    pub(crate) fn lengths(&self, block: u32) -> Vec<u32> {
        self.server.as_ref().map_or_else(Vec::new, |server| server.weights().lengths(block))
    }

    fn run_spec(&self) -> &RunSpec {
        &self.setup.settings.run
    }

    fn server(&mut self) -> Result<&mut Server, SimulationError> {
        self.server.as_mut().ok_or(SimulationError::Lost("the aggregation server"))
    }

    /// Puts the server's weights into the store.
    fn publish(&mut self, network: &mut Network, round: u64) -> Result<Published, SimulationError> {
        let files = self.server()?.files()?;
        if let Some(stand_in) = &mut network.stand_in {
            stand_in.published(&files);
        }
        let published = files.published(round);
        files.all().for_each(|file| {
            network.keep(file.clone());
        });
        self.stored.push_back(published.clone());
        if !self.keep_all {
            self.sweep(network);
        }
        Ok(published)
    }

    /// Takes out of the store what no worker and no round asks for any more.
    fn sweep(&mut self, network: &mut Network) {
        std::mem::take(&mut self.deltas).into_iter().for_each(|delta| network.forget(delta));
        if self.stored.len() <= ROUNDS_KEPT {
            return;
        }
        let old = self.stored.pop_front();
        let kept =
            |hash: BlobHash| self.stored.iter().flat_map(Published::blobs).any(|blob| blob.hash == hash);
        for blob in old.iter().flat_map(Published::blobs).filter(|blob| !kept(blob.hash)) {
            network.forget(blob.hash);
        }
    }

    fn resume(&self, network: &Network, manifest: &RoundManifest) -> Result<Server, SimulationError> {
        let file = |blob: BlobRef| {
            network.file(blob.hash).cloned().ok_or(SimulationError::Lost("the weights of a round"))
        };
        let files = manifest.published.weights().map(file).collect::<Result<Vec<Rc<Vec<u8>>>, _>>()?;
        let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
        let outer = manifest.published.outer.map(file).transpose()?;
        let outer = outer.as_ref().map(|outer| outer.as_slice());
        Ok(Server::resume(self.run_spec(), &files, outer, self.setup.rules)?)
    }

    fn send_round(
        &mut self,
        worker: WorkerId,
        task: RoundTask,
        slot: u32,
        desk: &mut Desk<'_, Self>,
    ) -> Result<(), SimulationError> {
        let Some(endpoint) = desk.network.endpoint_of(worker) else { return Ok(()) };
        let run = self.run_spec();
        let (steps, shape) = (task.learning_rates.len() as u32, [run.sequences, run.context + 1]);
        let ids = match self.dry {
            true => vec![0; (steps * shape[0] * shape[1]) as usize],
            false => self.windows.round(task.round, slot, steps),
        };
        let (windows, payload) = encode_tokens(&ids, &[steps, shape[0], shape[1]])?;
        self.hostile.given(endpoint, &task);
        if self.luck.as_mut().is_some_and(|luck| !luck.begins(endpoint, steps, desk)) {
            // It is there, hears nothing, and brings nothing.
            return Ok(());
        }
        desk.send(worker, Round { task, windows }, &payload)
    }

    fn send_evaluation(
        &mut self,
        worker: WorkerId,
        task: EvaluationTask,
        desk: &mut Desk<'_, Self>,
    ) -> Result<(), SimulationError> {
        let run = self.run_spec();
        let shape = [run.sequences, run.context + 1];
        let ids = match self.dry {
            true => vec![0; (shape[0] * shape[1]) as usize],
            false => self.windows.evaluation(task.batch),
        };
        let (windows, payload) = encode_tokens(&ids, &shape)?;
        desk.send(worker, Evaluate { task, windows }, &payload)
    }

    fn check(
        &mut self,
        worker: WorkerId,
        block: u32,
        published: &Published,
        blob: BlobRef,
        desk: &mut Desk<'_, Self>,
    ) -> Result<(), SimulationError> {
        let outcome = match desk.network.file(blob.hash).cloned() {
            Some(bytes) => self.server()?.check(worker, block, published, &bytes),
            None => Err(DeltaRefusal::Unreadable { why: "there is no such file in the store".into() }),
        };
        let traffic = match desk.network.endpoint_of(worker) {
            Some(endpoint) => std::mem::take(&mut desk.network.endpoints[endpoint].traffic),
            None => Traffic::default(),
        };
        desk.tell(Event::DeltaChecked { worker, round: published.round, outcome, traffic });
        Ok(())
    }

    fn average(
        &mut self,
        round: u64,
        work: Vec<Work>,
        updates: Vec<u64>,
        totals: Totals,
        desk: &mut Desk<'_, Self>,
    ) -> Result<(), SimulationError> {
        if desk.is_disk_full() {
            desk.tell(Event::AverageFailed { round, why: "the disk is full".into(), again: true });
            return Ok(());
        }
        let accepted: Vec<WorkerId> = work.iter().map(|work| work.worker).collect();
        let averaged = match self.server()?.average(&accepted) {
            Ok(averaged) => averaged,
            Err(error @ (ServerError::NotFinite | ServerError::Aggregate(_))) => {
                desk.tell(Event::AverageFailed { round, why: error.to_string(), again: false });
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let published = self.publish(desk.network, round + 1)?;
        let updates = updates
            .iter()
            .zip(&averaged.updated)
            .map(|(count, updated)| count + u64::from(*updated))
            .collect();
        let run = self.run_spec().clone();
        let dropped = |work: &Work| averaged.dropped.iter().any(|(worker, _)| *worker == work.worker);
        let work = work.into_iter().filter(|work| !dropped(work)).collect();
        let accepted = totals.accepted.saturating_sub(averaged.dropped.len() as u64);
        let refused = totals.refused + averaged.dropped.len() as u64;
        let totals = Totals { accepted, refused, ..totals };
        let manifest = RoundManifest { run, published, updates, totals, work };
        desk.write(Publication { manifest, averaged });
        Ok(())
    }

    fn measure(&mut self, published: &Published, batches: Vec<u32>, desk: &mut Desk<'_, Self>) {
        let files: Vec<Rc<Vec<u8>>> =
            published.weights().filter_map(|blob| desk.network.file(blob.hash).cloned()).collect();
        let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
        let work: Vec<(u32, Vec<u32>)> =
            batches.into_iter().map(|batch| (batch, self.windows.evaluation(batch))).collect();
        let (run, draws, seed) = (self.run_spec(), self.setup.rounds.draws, self.setup.settings.seed);
        let all = map(work, |(batch, windows)| {
            let key = control::block::seeds::evaluation(seed, batch);
            let scores = block_on(evaluate::measure(run, &files, &windows, key, draws));
            (batch, scores.map_err(|error| error.to_string()))
        });
        for (batch, outcome) in all {
            desk.tell(Event::Evaluated { round: published.round, batch, outcome });
        }
    }
}

impl<W: Windows> Runtime for BlockRuntime<W> {
    type Mode = Block;
    type Write = Publication;

    fn begin(&mut self, network: &mut Network) -> Result<Run<Block>, SimulationError> {
        let manifest = self.manifests.last().cloned();
        self.deltas.clear();
        let BlockSetup { settings, rounds, rules } = self.setup.clone();
        let published = match &manifest {
            Some(manifest) => {
                self.server = Some(self.resume(network, manifest)?);
                manifest.published.clone()
            }
            None => {
                self.server = Some(Server::draw(&settings.run, settings.seed, rules)?);
                self.publish(network, 0)?
            }
        };
        Ok(BlockRun::new(settings, rounds, published, manifest, Curve::default()))
    }

    fn act(&mut self, action: Action, desk: &mut Desk<'_, Self>) -> Result<(), SimulationError> {
        match action {
            Action::SendRound { worker, task, slot } => self.send_round(worker, task, slot, desk),
            Action::SendEvaluation { worker, task } => self.send_evaluation(worker, task, desk),
            Action::CheckDelta { worker, block, published, blob } => {
                self.check(worker, block, &published, blob, desk)
            }
            Action::Average { round, work, updates, totals, checkpoint: _ } => {
                self.average(round, work, updates, totals, desk)
            }
            Action::Evaluate { published, batches } => {
                self.measure(&published, batches, desk);
                Ok(())
            }
        }
    }

    fn relay(&mut self, _: WorkerId, message: &Relayed, _: &[u8]) -> Result<Option<WorkerId>, Refusal> {
        use protocol::message::Header;
        let detail = "nothing is relayed in block mode".into();
        Err(Refusal::Unexpected { message: message.name().into(), detail })
    }

    fn said(
        &mut self,
        worker: WorkerId,
        message: Up,
        desk: &mut Desk<'_, Self>,
    ) -> Result<Option<Up>, SimulationError> {
        let (Up::DeltaReady(ready), Some(endpoint)) = (&message, desk.network.endpoint_of(worker)) else {
            return Ok(Some(message));
        };
        self.deltas.push(ready.blob.hash);
        let lengths = self.lengths(ready.block);
        self.hostile.delta_ready(worker, endpoint, ready.clone(), &lengths, desk)
    }

    fn written(&mut self, Publication { manifest, averaged }: Publication) -> Option<Event> {
        let published = manifest.published.clone();
        // A coordinator that was killed while it wrote begins this round again from an older manifest.
        self.manifests.retain(|older| older.published.round < published.round);
        if !self.keep_all {
            self.manifests.clear();
        }
        self.manifests.push(manifest);
        let Averaged { updated, dropped } = averaged;
        Some(Event::Averaged { published, updated, dropped })
    }
}

/// Puts the tiny model's settings in place of those of a run, and counts the bytes of the run's own.
///
/// # Errors
/// A run that is not in block mode.
pub(crate) fn stand_in(setup: &mut BlockSetup) -> Result<StandIn, SimulationError> {
    let stand_in = StandIn::replace(&mut setup.settings, setup.rules)?;
    // Deltas of nothing worth mention are no less welcome.
    setup.rules = unchecked(setup.rules);
    setup.settings.validate_every = 0;
    Ok(stand_in)
}

/// Rules that turn nobody away.
pub(crate) fn unchecked(rules: Rules) -> Rules {
    Rules { suspicious: false, norm_limit: None, largest: f32::MAX, ..rules }
}
