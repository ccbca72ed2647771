//! The virtual clock, and all that happens at it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use engine::block::BlockError;
use protocol::{
    VERSION,
    blob::{BlobHash, BlobRef},
    delta::{DeltaEncoding, DeltaHeader, encoded_bytes},
    evaluation::Scores,
    frame,
    message::{
        Address, DeltaReady, Fault, FaultKind, Hello, LinkSpeed, Message, Pass, PassSeconds, Profile, Round,
        TensorFrame, Timings, Vitals, WorkerKind,
    },
    spec::{Backend, RunSpec},
    tensor::encode_tokens,
    view::Phase,
};

use super::{
    Behaviour, Outcome, Plan, Speed,
    parallel::map,
    regime::Away,
    worker::{Bench, Job, Worker, dry},
};
use crate::{
    block_mode,
    config::RunConfig,
    data::{
        Dataset,
        windows::{TrainWindows, ValidationWindows},
    },
    rounds::{
        DeltaRefusal, Keeper, Published,
        deadline::DeadlinePolicy,
        evaluation::{self, Evaluator},
        machine::Machine,
        windows,
    },
    run::event::{Action, Event, Record, Traffic, Windows, WorkerId},
    serve,
};

/// Rounds that may come to nothing in a row before the run is given up.
const MOST_IN_VAIN: u32 = 100;
/// A copier sends this long after the one it copies, in seconds.
const COPIED_AFTER: f64 = 1e-3;
/// Bytes of a delta file before its header.
const DELTA_PREFIX: u64 = 8;

/// What happens by itself at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The coordinator hears that the delta of this turn is there.
    Heard {
        worker: usize,
        turn: u64,
    },
    /// The worker disconnects, for so long.
    Leaves {
        worker: usize,
        away: Duration,
    },
    Joins {
        worker: usize,
    },
}

pub struct World<'a> {
    config: &'a RunConfig,
    plan: &'a Plan,
    run: RunSpec,
    machine: Machine,
    keeper: Keeper,
    train: TrainWindows,
    validation: ValidationWindows,
    workers: Vec<Worker>,
    by_id: BTreeMap<WorkerId, usize>,
    next_id: u64,
    /// The files of the published weights.
    files: HashMap<BlobHash, Arc<Vec<u8>>>,
    /// Deltas in the store.
    deltas: HashMap<BlobHash, Vec<u8>>,
    /// Rounds whose windows follow.
    asked: BTreeMap<WorkerId, Round>,
    queue: BinaryHeap<Reverse<(Duration, u64, Happening)>>,
    order: u64,
    now: Duration,
    records: Vec<Record>,
    in_vain: u32,
    heartbeat_bytes: u64,
    /// Whether workers train, or only send something as long.
    real: bool,
}

impl<'a> World<'a> {
    /// `deadline` wins over the plan's.
    pub fn new(
        config: &'a RunConfig,
        dataset: &Dataset,
        plan: &'a Plan,
        speeds: &[Speed],
        deadline: Option<DeadlinePolicy>,
        real: bool,
    ) -> anyhow::Result<World<'a>> {
        super::check(config)?;
        ensure!(!speeds.is_empty(), "there are no workers; simulate at least 1");
        let training = &config.training;
        let shape = training.window_shape();
        let train = dataset.train_windows(training.seed, shape, 1)?;
        let validation = dataset.validation_windows(shape)?;
        let mut settings = serve::settings(config, dataset, validation.batches());
        settings.start_with = speeds.len() as u32;
        settings.max_workers = settings.max_workers.max(speeds.len() as u32);
        if !real {
            settings.validate_every = 0;
        }
        let run = settings.run.clone();
        let mut rules = config.rounds.rules(training.learning_rate);
        if !plan.checks {
            rules.suspicious = false;
            rules.norm_limit = None;
            rules.largest = f32::MAX;
        }
        let keeper = Keeper::draw(&run, settings.seed, rules)?;
        let files = keeper.files()?;
        let published = files.published(0);
        let mut rounds = block_mode::round_settings(config, &run)?;
        // Nobody has idle virtual time to give away.
        rounds.evaluator = Evaluator::Coordinator;
        let sizes = Sizes::new(config, &run, &published, keeper.weights().lengths(0))?;
        let typical = sizes.typical(&plan.regime.median, rounds.local_steps);
        rounds.deadline = deadline.unwrap_or_else(|| super::deadline(config, plan, typical));
        let worker = |(index, speed): (usize, &Speed)| Worker {
            id: WorkerId(0),
            connected: false,
            speed: *speed,
            behaviour: plan.hostile.get(index).copied().unwrap_or(Behaviour::Honest),
            bench: Bench::default(),
            cached: vec![],
            job: None,
            turn: 0,
            traffic: Traffic::default(),
            beaten: 0.0,
            first: None,
        };
        Ok(World {
            config,
            plan,
            machine: Machine::new(settings, rounds, published, None),
            files: files.all().map(|file| (BlobHash::of(file), Arc::new(file.clone()))).collect(),
            keeper,
            run,
            train,
            validation,
            workers: speeds.iter().enumerate().map(worker).collect(),
            by_id: BTreeMap::new(),
            next_id: 1,
            deltas: HashMap::new(),
            asked: BTreeMap::new(),
            queue: BinaryHeap::new(),
            order: 0,
            now: Duration::ZERO,
            records: vec![],
            in_vain: 0,
            heartbeat_bytes: frame::encode(&Message::Heartbeat, &[])?.len() as u64,
            real,
        })
    }

    /// Lets time pass until the run is over.
    pub fn run(mut self, mut told: impl FnMut(u64)) -> anyhow::Result<Outcome> {
        for worker in 0..self.workers.len() {
            self.joins(worker)?;
        }
        let mut round = 0;
        while !matches!(self.machine.phase(), Phase::Finished | Phase::Stopped) {
            let next = self.queue.peek().map(|Reverse((at, ..))| *at);
            let wake = self.machine.wake_at();
            match (next, wake) {
                (None, None) => bail!("nothing can happen any more: no worker is left"),
                (Some(next), wake) if wake.is_none_or(|wake| next <= wake) => {
                    self.now = self.now.max(next);
                    if let Some(Reverse((.., happening))) = self.queue.pop() {
                        self.happens(happening)?;
                    }
                }
                (_, wake) => {
                    // A wake that was already heard: numbers of the clock are rounded to nanoseconds.
                    self.now = wake.unwrap_or_default().max(self.now + Duration::from_nanos(1));
                    for worker in self
                        .workers
                        .iter()
                        .filter(|worker| worker.connected)
                        .map(|w| w.id)
                        .collect::<Vec<_>>()
                    {
                        self.feed(Event::Heard { worker })?;
                    }
                    self.feed(Event::Tick)?;
                }
            }
            while round < self.machine.published().round {
                round += 1;
                told(round);
            }
            ensure!(
                self.in_vain < MOST_IN_VAIN,
                "{MOST_IN_VAIN} rounds in a row were taken back: all workers leave; lower the regime's dropout"
            );
        }
        self.outcome()
    }

    fn outcome(self) -> anyhow::Result<Outcome> {
        let view = self.machine.view(self.now);
        ensure!(view.phase == Phase::Finished, "the run was stopped: {}", view.reason);
        let (mut seconds, mut rounds, mut accepted) = (0.0, 0u64, 0u64);
        let mut traffic = Traffic::default();
        for record in &self.records {
            match record {
                Record::RoundClosed { seconds: of_round, accepted: of, .. } => {
                    seconds += of_round;
                    rounds += 1;
                    accepted += of;
                }
                Record::DeltaAccepted { traffic: of, .. } => {
                    traffic.down += of.down;
                    traffic.up += of.up;
                }
                _ => {}
            }
        }
        let each = |bytes: u64| bytes as f64 / accepted.max(1) as f64;
        let rounds_view = view.rounds.context("the run has no rounds")?;
        Ok(Outcome {
            participation: rounds_view.mean_participation.unwrap_or(0.0),
            seconds: self.now.as_secs_f64(),
            round_seconds: seconds / rounds.max(1) as f64,
            bytes_down: each(traffic.down),
            bytes_up: each(traffic.up),
            local_steps: accepted * u64::from(self.config.rounds.local_steps),
            scores: rounds_view.evaluation.map(|(_, scores)| scores),
            curve: self.machine.curve().to_vec(),
            refusals: view.refusals,
            state: self.machine.published().state().to_string(),
            records: self.records,
        })
    }

    fn at(&mut self, seconds: f64, happening: Happening) {
        let at = self.now.max(Duration::from_secs_f64(seconds.max(0.0)));
        self.order += 1;
        self.queue.push(Reverse((at, self.order, happening)));
    }

    fn happens(&mut self, happening: Happening) -> anyhow::Result<()> {
        match happening {
            Happening::Heard { worker, turn } if self.workers[worker].turn == turn => self.delivers(worker),
            Happening::Heard { .. } => Ok(()),
            Happening::Leaves { worker, away } => {
                let gone = &mut self.workers[worker];
                let id = gone.id;
                // The tab is closed: all it had is gone with it.
                (gone.connected, gone.bench, gone.job) = (false, Bench::default(), None);
                gone.cached.clear();
                gone.turn += 1;
                self.by_id.remove(&id);
                self.at((self.now + away).as_secs_f64(), Happening::Joins { worker });
                self.feed(Event::Gone { worker: id, why: "closed its tab".into() })
            }
            Happening::Joins { worker } => self.joins(worker),
        }
    }

    fn joins(&mut self, index: usize) -> anyhow::Result<()> {
        let id = WorkerId(self.next_id);
        self.next_id += 1;
        self.by_id.insert(id, index);
        let layers = f64::from(self.run.model.layers / self.run.blocks.map_or(1, |blocks| blocks.count));
        let Worker { speed, .. } = self.workers[index];
        // Such that the machine expects what a step takes.
        let half =
            PassSeconds { forward: speed.step_seconds / 9.0, backward: speed.step_seconds * 2.0 / 9.0 };
        let profile = Profile {
            backend: Backend::Cpu,
            device: "a virtual worker".into(),
            threads: 1,
            memory_bytes: 0,
            layer: PassSeconds { forward: half.forward / layers, backward: half.backward / layers },
            embedding: half,
            head_seconds: speed.step_seconds / 3.0,
            link: Some(LinkSpeed { round_trip_seconds: 2.0 * speed.latency, up: speed.up, down: speed.down }),
        };
        let hello = Hello {
            protocol: VERSION,
            build: "simulated".into(),
            kind: WorkerKind::Browser,
            name: format!("worker {index}"),
        };
        let worker = &mut self.workers[index];
        (worker.id, worker.connected) = (id, true);
        (worker.traffic, worker.beaten) = (Traffic::default(), self.now.as_secs_f64());
        self.feed(Event::Joined { worker: id, hello, token: String::new() })?;
        self.feed(Event::Said { worker: id, message: Message::Profile(profile) })
    }

    /// An event for the machine, and all that follows from it at once.
    fn feed(&mut self, event: Event) -> anyhow::Result<()> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.machine.handle(self.now, event) {
                self.act(action, &mut events)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action, events: &mut VecDeque<Event>) -> anyhow::Result<()> {
        match action {
            Action::Send { worker, message } => {
                let Some(&index) = self.by_id.get(&worker) else { return Ok(()) };
                let bytes = frame::encode(&message, &[])?.len() as u64;
                match message {
                    // What joining costs is left out.
                    Message::Welcome(_) | Message::Benchmark => return Ok(()),
                    Message::Round(round) => {
                        self.asked.insert(worker, round);
                    }
                    Message::Judged(judged) => {
                        // With the next round begun, what an older delta took is put back by that.
                        let at_next = |job: &Job| job.round.round > judged.round;
                        if !self.workers[index].job.as_ref().is_some_and(at_next) {
                            self.workers[index].bench.judged(&judged);
                        }
                    }
                    _ => {}
                }
                self.workers[index].traffic.down += bytes;
            }
            Action::SendWindows { worker, windows: Windows::Round { round, block, slot } } => {
                if let Some(asked) = self.asked.remove(&worker)
                    && let Some(&index) = self.by_id.get(&worker)
                {
                    self.begins(index, asked, (round, block, slot))?;
                }
            }
            Action::CheckDelta { worker, block, published, blob } => {
                let outcome = match self.deltas.remove(&blob.hash) {
                    Some(bytes) => self.keeper.check(worker, block, &published, &bytes),
                    None => Err(DeltaRefusal::Unreadable { why: "there is no such blob".into() }),
                };
                let traffic = match self.by_id.get(&worker) {
                    Some(&index) => std::mem::take(&mut self.workers[index].traffic),
                    None => Traffic::default(),
                };
                events.push_back(Event::DeltaChecked { worker, round: published.round, outcome, traffic });
            }
            Action::Average { round, work, .. } => {
                let accepted: Vec<_> = work.iter().map(|work| work.worker).collect();
                let averaged = match self.keeper.average(&accepted) {
                    Ok(averaged) => averaged,
                    Err(error) => {
                        let event = Event::AverageFailed { round: round + 1, why: error.to_string() };
                        events.push_back(event);
                        return Ok(());
                    }
                };
                let files = self.keeper.files()?;
                self.files = files.all().map(|file| (BlobHash::of(file), Arc::new(file.clone()))).collect();
                events.push_back(Event::Averaged { published: files.published(round + 1), averaged });
            }
            Action::Evaluate { published, batches } => {
                let round = published.round;
                let all = self.measure(&published, &batches);
                for (batch, outcome) in batches.into_iter().zip(all) {
                    events.push_back(Event::Evaluated { round, batch, outcome });
                }
            }
            Action::Record(record) => {
                match record {
                    Record::RoundTakenBack { .. } => self.in_vain += 1,
                    Record::RoundClosed { .. } => self.in_vain = 0,
                    _ => {}
                }
                self.records.push(record);
            }
            Action::Close { worker, .. } => {
                if let Some(index) = self.by_id.remove(&worker) {
                    let closed = &mut self.workers[index];
                    (closed.connected, closed.job) = (false, None);
                    closed.turn += 1;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A worker is given a round: when will it do what?
    fn begins(&mut self, index: usize, round: Round, of: (u64, u32, u32)) -> anyhow::Result<()> {
        let (number, block, slot) = of;
        let steps = round.learning_rates.len() as u32;
        let (local, slots) = (self.config.rounds.local_steps, self.config.session.max_workers);
        let tokens = windows::of_round(&mut self.train, number, slot, steps, local, slots);
        let shape = self.train.shape();
        let (tensor, payload) = encode_tokens(&tokens, &[steps, shape.sequences, shape.context + 1])?;
        let to = Address {
            epoch: number,
            step: number * u64::from(local),
            pass: Pass::Train { micro_batch: slot },
            hop: block,
        };
        let tokens_bytes =
            frame::encode(&Message::Tokens(TensorFrame { to, tensor }), &payload)?.len() as u64;
        let round_bytes = frame::encode(&Message::Round(round.clone()), &[])?.len() as u64;
        let file = |blob: BlobRef| {
            self.files.get(&blob.hash).cloned().context("a round names weights that are not published")
        };
        let files = [file(round.base)?, file(round.table)?];
        let now = self.now.as_secs_f64();
        let due = now + round.deadline_ms as f64 / 1e3;
        let sizes = Sizes::new(
            self.config,
            &self.run,
            self.machine.published(),
            self.keeper.weights().lengths(block),
        )?;

        let worker = &mut self.workers[index];
        worker.turn += 1;
        let fortune = self.plan.regime.fortune(self.plan.seed, index as u64, worker.turn);
        let link = |seconds: f64| seconds * fortune.link;
        let Speed { step_seconds, latency, down, up } = worker.speed;
        let arrives = now + link(latency + (round_bytes + tokens_bytes) as f64 / down);
        worker.traffic.down += tokens_bytes;
        // Whatever is under way is too late now: downloads and uploads are finished first, steps dropped at their end.
        let mut start = arrives;
        if let Some(job) = worker.job.take()
            && arrives < job.stored
        {
            if arrives <= job.begin {
                start = job.begin;
            } else if arrives < job.end {
                let done = ((arrives - job.begin) / job.step).ceil().min(f64::from(steps));
                start = job.begin + done * job.step;
                if self.real && job.trained.is_none() && !round.fresh {
                    let failed = worker.bench.train(&self.run, &job, Some(done as u32)).is_err();
                    if failed {
                        worker.bench = Bench::default();
                    }
                }
            } else {
                start = job.stored;
            }
        }
        let mut begin = start;
        for blob in [round.base, round.table] {
            if !worker.cached.contains(&blob.hash) {
                begin += link(2.0 * latency + blob.bytes as f64 / down);
                worker.traffic.down += blob.bytes;
            }
        }
        worker.cached = vec![round.base.hash, round.table.hash];
        let step = step_seconds * fortune.compute;
        let end = begin + f64::from(steps) * step;
        let stored = end + link(2.0 * latency + sizes.delta as f64 / up);
        let heard = stored + link(latency + sizes.ready as f64 / up);
        let turn = worker.turn;
        match fortune.away {
            None => {
                worker.job = Some(Job {
                    round,
                    windows: Arc::new(tokens),
                    files,
                    begin,
                    step,
                    end,
                    stored,
                    heard,
                    due,
                    trained: None,
                });
                self.at(heard, Happening::Heard { worker: index, turn });
            }
            Some(Away::Mute) => {}
            Some(Away::Gone { after }) => {
                let length = heard - now;
                let away = Duration::from_secs_f64(length);
                self.at(now + after * length, Happening::Leaves { worker: index, away });
            }
        }
        Ok(())
    }

    /// Trains this worker's job, and beside it those that are sure to be finished before the round's time is up.
    fn train_due(&mut self, index: usize) -> anyhow::Result<()> {
        if self.workers[index].job.as_ref().is_none_or(|job| job.trained.is_some()) {
            return Ok(());
        }
        let lengths = |block: u32| self.keeper.weights().lengths(block);
        let mut work = Vec::new();
        for (other, worker) in self.workers.iter_mut().enumerate() {
            if let Some(job) = &worker.job
                && job.trained.is_none()
                && (other == index || job.end <= job.due)
            {
                work.push((other, std::mem::take(&mut worker.bench), job.clone()));
            }
        }
        let (run, real, seed) = (&self.run, self.real, self.plan.seed);
        let trained = map(work, |(other, mut bench, job)| {
            let trained = match real {
                true => bench.train(run, &job, None),
                false => Ok(dry(&lengths(job.round.block), [seed, other as u64, job.round.round])),
            };
            (other, bench, trained)
        });
        let mut failed = Vec::new();
        for (other, bench, trained) in trained {
            let worker = &mut self.workers[other];
            worker.bench = bench;
            match (trained, &mut worker.job) {
                (Ok(trained), Some(job)) => job.trained = Some(trained),
                (Err(error), Some(job)) => failed.push((other, job.round.round, error)),
                (_, None) => {}
            }
        }
        for (other, epoch, error) in failed {
            let worker = &mut self.workers[other];
            (worker.bench, worker.job) = (Bench::default(), None);
            worker.turn += 1;
            let id = worker.id;
            let kind = match error {
                BlockError::Stage(_) => FaultKind::NotFinite,
                _ => FaultKind::Weights,
            };
            let fault = Fault { epoch, kind, detail: error.to_string() };
            self.feed(Event::Said { worker: id, message: Message::Fault(fault) })?;
        }
        Ok(())
    }

    /// The coordinator hears of a worker's delta.
    fn delivers(&mut self, index: usize) -> anyhow::Result<()> {
        self.train_due(index)?;
        let Some(job) = self.workers[index].job.clone() else { return Ok(()) };
        let Some(trained) = job.trained.clone() else { return Ok(()) };
        let mut delta = trained.delta;
        let mut other = None;
        if self.workers[index].behaviour == Behaviour::Copy {
            let victim = self
                .workers
                .iter()
                .filter(|worker| worker.behaviour == Behaviour::Honest)
                .filter_map(|worker| worker.job.as_ref())
                .find(|theirs| key(&theirs.round) == key(&job.round));
            if let Some(theirs) = victim {
                let after = theirs.heard + COPIED_AFTER;
                if theirs.trained.is_none() || after > self.now.as_secs_f64() + 1e-9 {
                    if theirs.heard <= job.due {
                        let turn = self.workers[index].turn;
                        self.at(after, Happening::Heard { worker: index, turn });
                        return Ok(());
                    }
                } else {
                    other = theirs.trained.as_ref().map(|trained| trained.delta.clone());
                }
            }
        }
        let worker = &mut self.workers[index];
        let keys = [self.plan.seed ^ 0x6e6f, index as u64, job.round.round];
        worker.behaviour.apply(&mut delta, worker.first.as_deref(), other.as_deref(), keys);
        if worker.behaviour == Behaviour::Replay && worker.first.is_none() {
            worker.first = Some(delta.clone());
        }
        let header = header(&self.run, &job.round, self.keeper.weights().lengths(job.round.block));
        let bytes = worker.bench.encode(&header, &delta)?;
        let blob = BlobRef::of(&bytes);
        let steps = job.round.learning_rates.len() as f64;
        let ready =
            ready(&job.round, blob, steps * job.step, trained.score.loss, trained.score.cross_entropy);
        let message = Message::DeltaReady(ready);
        worker.traffic.up += blob.bytes + frame::encode(&message, &[])?.len() as u64;
        let every = self.config.session.heartbeat_seconds;
        let beats = ((self.now.as_secs_f64() - worker.beaten) / every).floor().max(0.0);
        worker.beaten += beats * every;
        worker.traffic.up += beats as u64 * self.heartbeat_bytes;
        let id = worker.id;
        self.deltas.insert(blob.hash, bytes);
        self.feed(Event::Said { worker: id, message })?;
        // One that was too late is not looked at.
        self.deltas.remove(&blob.hash);
        Ok(())
    }

    fn measure(&self, published: &Published, batches: &[u32]) -> Vec<Result<Scores, String>> {
        let files: Vec<Arc<Vec<u8>>> = published
            .blocks
            .iter()
            .chain([&published.table])
            .filter_map(|blob| self.files.get(&blob.hash).cloned())
            .collect();
        let seed = self.config.training.seed;
        let draws = self.config.rounds.draws;
        map(batches.to_vec(), |batch| {
            let files: Vec<&[u8]> = files.iter().map(|file| file.as_slice()).collect();
            evaluation::measure(&self.run, &files, &self.validation, batch, seed, draws)
                .map_err(|error| error.to_string())
        })
    }
}

/// Round and block: deltas of one key can stand for each other.
fn key(round: &Round) -> (u64, u32) {
    (round.round, round.block)
}

fn header(run: &RunSpec, round: &Round, lengths: Vec<u32>) -> DeltaHeader {
    DeltaHeader {
        round: round.round,
        block: round.block,
        base: round.base.hash,
        table: round.table.hash,
        encoding: run.blocks.map_or(DeltaEncoding::F32, |blocks| blocks.delta),
        lengths,
    }
}

fn ready(round: &Round, blob: BlobRef, seconds: f64, loss: f64, cross_entropy: f64) -> DeltaReady {
    let timings = Timings { forward: seconds / 3.0, backward: seconds * 2.0 / 3.0, ..Timings::default() };
    let (loss, cross_entropy) = (loss as f32, cross_entropy as f32);
    DeltaReady {
        round: round.round,
        block: round.block,
        blob,
        loss,
        cross_entropy,
        timings,
        vitals: Vitals::default(),
    }
}

/// Bytes of what goes to and fro in a round.
struct Sizes {
    down: u64,
    windows: u64,
    delta: u64,
    ready: u64,
}

impl Sizes {
    fn new(
        config: &RunConfig,
        run: &RunSpec,
        published: &Published,
        lengths: Vec<u32>,
    ) -> anyhow::Result<Sizes> {
        let block = published.blocks.first().copied().context("blocks.count is 0: give at least 1")?;
        let round = Round {
            round: published.round,
            block: 0,
            base: block,
            table: published.table,
            seed: 0,
            learning_rates: vec![],
            fresh: false,
            deadline_ms: 0,
        };
        let payload = encoded_bytes(run.blocks.map_or(DeltaEncoding::F32, |blocks| blocks.delta), &lengths);
        let head = postcard::to_stdvec(&header(run, &round, lengths))?.len() as u64;
        let delta = DELTA_PREFIX + head + payload;
        let blob = BlobRef { bytes: delta, ..block };
        let message = Message::DeltaReady(ready(&round, blob, 0.0, 0.0, 0.0));
        let sequences = u64::from(run.sequences) * u64::from(run.context + 1);
        Ok(Sizes {
            down: block.bytes + published.table.bytes,
            windows: 4 * sequences * u64::from(config.rounds.local_steps),
            delta,
            ready: frame::encode(&message, &[])?.len() as u64,
        })
    }

    /// Seconds from the opening of a round to the delta of a worker without luck, good or bad.
    fn typical(&self, speed: &Speed, steps: u32) -> f64 {
        let Speed { step_seconds, latency, down, up } = *speed;
        let bytes = (self.down + self.windows) as f64 / down + (self.delta + self.ready) as f64 / up;
        // Frames one way each, two files down and one up with their requests.
        8.0 * latency + bytes + f64::from(steps) * step_seconds
    }
}
