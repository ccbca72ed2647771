//! A pipeline run under a virtual clock, with workers that answer as real ones do.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use control::{
    Event, Record, Settings,
    action::Action,
    curve::Curve,
    pipeline::{self, Asking, Half, Manifest, PipelineRun, Relay, SnapshotPart, plan::Stages},
};
use protocol::{
    blob::BlobRef,
    message::{
        Decoded, DeviceStatus, Down, Pass, PassSeconds, Ready, SnapshotReady, StepReport, Timings, Traversal,
        Up, ValidationReport,
    },
    refusal::Refusal,
    spec::{Assignment, WeightSource},
    tensor::encode_floats,
    view::Phase,
    worker_id::WorkerId,
};

use super::{
    assert_counts_are_right, assert_record_is_json, assert_view_is_json, hello, pass_seconds, profile,
    run_spec,
};

/// M of these runs.
const MICRO_BATCHES: u32 = 3;

/// Four layers, three micro-batches.
pub fn settings(steps: u64, start_with: u32) -> Settings {
    super::settings(run_spec(4, MICRO_BATCHES, None), steps, start_with)
}

/// Micro-batches that weights have seen, in order.
pub type History = Vec<(u64, u32)>;

/// The answer of a hop, after so many seconds.
pub fn decoded(of: Traversal, seconds: f64) -> Decoded {
    let (rows, _) = encode_floats(&[], &[0, 4], protocol::tensor::Encoding::F32).unwrap();
    Decoded { of, seconds, tokens: vec![], rows }
}

/// A worker as the run sees it. It "trains" by remembering which micro-batches its weights have seen: the weights of a
/// stage are that history, so that a lost or doubled micro-batch shows.
#[derive(Default, Clone)]
pub struct Peer {
    pub assignment: Option<Assignment>,
    history: History,
    step: u64,
    inputs: BTreeSet<Pass>,
    reported: bool,
    /// Seconds it takes for a layer, as it measures.
    pub slow: f64,
    /// Its steps take this many times as long as it measured.
    pub throttle: f64,
    /// It does no work of its own: what it says comes from the test.
    pub idle: bool,
    /// It does not even measure itself.
    unmeasured: bool,
}

/// A run and what is around it: peers, the store, the clock.
pub struct World {
    pub run: PipelineRun,
    pub now: Duration,
    pub peers: BTreeMap<WorkerId, Peer>,
    /// What peers have said and the run has not heard.
    pub said: VecDeque<(WorkerId, Up)>,
    /// Snapshot parts: from hash to the history in it.
    pub store: BTreeMap<[u8; 32], History>,
    pub manifests: Vec<Manifest>,
    /// Manifests being written.
    pub commits: VecDeque<u64>,
    pub closed: Vec<(WorkerId, Refusal)>,
    /// Points of the curve that stand.
    pub points: Vec<u64>,
    pub records: Vec<Record>,
    /// Times the relay was asked whose turn it is.
    pub asked_owing: usize,
    pub relay: Option<Relay>,
    /// Hops that were asked to compute for a text, in order.
    pub decodes: Vec<(WorkerId, Traversal)>,
    /// Traversals that have come through.
    pub traversed: Vec<u64>,
    /// Times that all caches were lost.
    pub losses: usize,
    /// The step whose weights can be asked.
    pub texts_of: Option<u64>,
    open: Option<u64>,
    next: u64,
}

impl World {
    pub fn new(settings: Settings, stages: Stages, resume: Option<Manifest>) -> Self {
        Self {
            run: PipelineRun::new(settings, stages, resume, Curve::default()),
            now: Duration::ZERO,
            peers: BTreeMap::new(),
            said: VecDeque::new(),
            store: BTreeMap::new(),
            manifests: vec![],
            commits: VecDeque::new(),
            closed: vec![],
            points: vec![],
            records: vec![],
            asked_owing: 0,
            relay: None,
            decodes: vec![],
            traversed: vec![],
            losses: 0,
            texts_of: None,
            open: None,
            next: 1,
        }
    }

    /// A run with as many stages as make it fastest.
    pub fn auto(steps: u64, start_with: u32) -> Self {
        Self::new(settings(steps, start_with), Stages::Auto, None)
    }

    pub fn handle(&mut self, event: Event) {
        let actions = self.run.handle(self.now, event);
        assert_counts_are_right(&self.run.core().roster, self.now);
        self.act(actions);
    }

    pub fn told(&mut self, event: pipeline::Event) {
        let actions = self.run.told(self.now, event);
        self.act(actions);
    }

    pub fn say(&mut self, worker: WorkerId, message: impl Into<Up>) {
        self.handle(Event::Said { worker, message: message.into() });
    }

    fn act(&mut self, actions: Vec<Action<pipeline::Action>>) {
        let mut recorded = false;
        for action in actions {
            match action {
                Action::Send { worker, message } => self.tell(worker, message),
                Action::Close { worker, refusal } => {
                    self.peers.remove(&worker);
                    self.said.retain(|(from, _)| *from != worker);
                    self.closed.push((worker, refusal));
                }
                Action::Record(record) => {
                    assert_record_is_json(&record);
                    recorded = true;
                    self.records.push(record);
                }
                Action::Point(point) => {
                    self.points.retain(|step| *step < point.step);
                    self.points.push(point.step);
                }
                Action::Mode(action) => self.act_of_mode(action),
            }
        }
        if recorded {
            assert_view_is_json(&self.run.view(self.now));
        }
    }

    fn act_of_mode(&mut self, action: pipeline::Action) {
        match action {
            pipeline::Action::SendBatch { to, half: Half::Inputs, .. } => {
                assert_eq!(Some(to.step), self.open, "batches are of the open step");
                // Every stage sees every micro-batch: the pipeline between them is not modelled here.
                for peer in self.peers.values_mut() {
                    if peer.assignment.as_ref().is_some_and(|a| a.epoch == to.epoch) {
                        assert!(peer.inputs.insert(to.pass), "{:?} is sent once", to.pass);
                    }
                }
            }
            pipeline::Action::SendBatch { .. } => {}
            pipeline::Action::Route(relay) => {
                self.relay = Some(relay);
                self.open = None;
            }
            pipeline::Action::OpenStep { step } => self.open = Some(step),
            pipeline::Action::Commit(manifest) => {
                self.commits.push_back(manifest.steps_done);
                self.manifests.push(manifest);
            }
            pipeline::Action::Prune { accepted } => {
                assert_eq!(self.run.snapshot().map(|m| m.steps_done), Some(accepted));
            }
            pipeline::Action::FindOwing => self.asked_owing += 1,
            pipeline::Action::Decode { worker, of, last } => {
                assert!(self.texts_of.is_some(), "nobody may be asked");
                self.decodes.push((worker, of));
                let Some(peer) = self.peers.get(&worker).filter(|peer| !peer.idle) else { return };
                let assignment = peer.assignment.as_ref().unwrap();
                assert_eq!(assignment.epoch, of.epoch);
                assert!(assignment.hops.iter().any(|hop| hop.index == of.hop && hop.part.head == last));
                self.said.push_back((worker, Up::Decoded(decoded(of, peer.slow))));
            }
            pipeline::Action::Traversed { number } => self.traversed.push(number),
            pipeline::Action::CachesLost => self.losses += 1,
            pipeline::Action::Texts(Asking::Step(step)) => self.texts_of = Some(step),
            pipeline::Action::Texts(Asking::Nobody | Asking::Over) => self.texts_of = None,
        }
    }

    fn tell(&mut self, worker: WorkerId, message: Down) {
        let Some(peer) = self.peers.get_mut(&worker) else { return };
        let mut say = |m| self.said.push_back((worker, m));
        match message {
            Down::Benchmark(_) if peer.unmeasured => {}
            Down::Benchmark(_) => say(Up::Profile(profile(peer.slow, 0, None))),
            Down::Assign(assign) => {
                let assignment = assign.0;
                peer.history = match &assignment.weights {
                    WeightSource::Seed(_) => vec![],
                    WeightSource::Snapshot(parts) => self.store[&parts[0].hash.0].clone(),
                };
                peer.step = assignment.first_step;
                peer.inputs.clear();
                peer.reported = false;
                if !peer.idle {
                    say(Up::Ready(Ready { epoch: assignment.epoch }));
                }
                peer.assignment = Some(assignment);
            }
            Down::Apply(apply) => {
                let Some(a) = &peer.assignment else { return };
                if apply.epoch != a.epoch {
                    return;
                }
                assert_eq!(apply.step, peer.step, "steps are applied in order");
                assert!((0.0..=1.0).contains(&apply.clip_scale), "{apply:?}");
                peer.history.extend((0..MICRO_BATCHES).map(|m| (apply.step, m)));
                peer.step += 1;
                peer.inputs.clear();
                peer.reported = false;
                if apply.snapshot {
                    let text = format!("{worker} {} {:?}", a.epoch, peer.history);
                    let blob = BlobRef::of(text.as_bytes());
                    self.store.insert(blob.hash.0, peer.history.clone());
                    if !peer.idle {
                        say(Up::SnapshotReady(SnapshotReady { epoch: a.epoch, steps_done: peer.step, blob }));
                    }
                }
            }
            Down::Revoke(_) => peer.assignment = None,
            _ => {}
        }
    }

    /// Whether a worker has a part of the open step to report.
    pub fn owes_report(&self, worker: WorkerId) -> bool {
        let Some(peer) = self.peers.get(&worker) else { return false };
        peer.assignment.is_some() && !peer.inputs.is_empty() && !peer.reported
    }

    /// What a peer has to say of the open step, once.
    pub fn work_of(&mut self, worker: WorkerId) -> Vec<Up> {
        let Some(peer) = self.peers.get_mut(&worker) else { return vec![] };
        let Some(a) = peer.assignment.clone() else { return vec![] };
        let last = a.hops.iter().any(|h| h.index + 1 == a.hop_count);
        let mut said = vec![];
        if last {
            for pass in peer.inputs.clone() {
                if let Pass::Validate { batch } = pass {
                    peer.inputs.remove(&pass);
                    let report = ValidationReport { epoch: a.epoch, step: peer.step, batch, loss: 2.0 };
                    said.push(Up::ValidationReport(report));
                }
            }
        }
        let all = (0..MICRO_BATCHES).all(|m| peer.inputs.contains(&Pass::Train { micro_batch: m }));
        if all && !peer.reported {
            peer.reported = true;
            let layers: u32 = a.hops.iter().map(|h| h.part.end_layer - h.part.first_layer).sum();
            let ends = a.hops.iter().map(|h| {
                0.1 * f64::from(u8::from(h.part.embedding)) + 0.2 * f64::from(u8::from(h.part.head))
            });
            let micro_batch = f64::from(layers) + ends.sum::<f64>();
            let seconds = f64::from(MICRO_BATCHES) * peer.slow * peer.throttle * micro_batch;
            let PassSeconds { forward, backward } = pass_seconds(seconds);
            said.push(Up::StepReport(StepReport {
                epoch: a.epoch,
                step: peer.step,
                squared_norm: 1.0,
                losses: if last { vec![3.0; MICRO_BATCHES as usize] } else { vec![] },
                timings: Timings { forward, backward, ..Timings::default() },
                status: DeviceStatus::default(),
            }));
        }
        said
    }

    /// A worker that takes so many seconds for a layer.
    pub fn join(&mut self, slow: f64) -> WorkerId {
        self.arrive(Peer { slow, throttle: 1.0, ..Peer::default() })
    }

    /// A worker that measures itself and does nothing else of its own accord.
    pub fn join_idle(&mut self, slow: f64) -> WorkerId {
        self.arrive(Peer { slow, throttle: 1.0, idle: true, ..Peer::default() })
    }

    /// A worker that never measures itself.
    pub fn join_unmeasured(&mut self) -> WorkerId {
        self.arrive(Peer { unmeasured: true, ..Peer::default() })
    }

    /// Whether the run knows a worker: it may have said that it leaves.
    pub fn knows(&self, worker: WorkerId) -> bool {
        self.run.core().roster.contains(worker)
    }

    /// A worker that the run does not know any more is gone from here too.
    pub fn drop_peer(&mut self, worker: WorkerId) {
        self.peers.remove(&worker);
        self.said.retain(|(from, _)| *from != worker);
    }

    fn arrive(&mut self, peer: Peer) -> WorkerId {
        let worker = WorkerId(self.next);
        self.next += 1;
        self.peers.insert(worker, peer);
        self.handle(Event::Joined { worker, hello: hello(), token: "t".into() });
        worker
    }

    pub fn leave(&mut self, worker: WorkerId) {
        self.peers.remove(&worker);
        self.said.retain(|(from, _)| *from != worker);
        self.handle(Event::Gone { worker, why: "closed".into() });
    }

    /// Everybody does what there is to do.
    pub fn work(&mut self) {
        for worker in self.peers.keys().copied().collect::<Vec<_>>() {
            if !self.peers[&worker].idle {
                let said = self.work_of(worker);
                self.said.extend(said.into_iter().map(|message| (worker, message)));
            }
        }
    }

    /// Takes back the next thing that a worker has said and the run has not heard.
    pub fn take_said(&mut self, worker: WorkerId) -> Option<Up> {
        let at = self.said.iter().position(|(from, _)| *from == worker)?;
        self.said.remove(at).map(|(_, message)| message)
    }

    /// One thing happens; which one is for `choice` to say. False when nothing is left to happen.
    pub fn happen(&mut self, choice: usize) -> bool {
        self.now += Duration::from_millis(100);
        self.work();
        let total = self.said.len() + self.commits.len();
        if total == 0 {
            return false;
        }
        let at = choice % total;
        if at < self.said.len() {
            // Messages of one worker stay in order, those of several mix.
            let worker = self.said[at].0;
            let first = self.said.iter().position(|(w, _)| *w == worker).unwrap();
            let (worker, message) = self.said.remove(first).unwrap();
            self.say(worker, message);
        } else if let Some(steps_done) = self.commits.pop_front() {
            self.commit(steps_done);
        }
        true
    }

    /// The manifest of this snapshot is written, if all its parts are what they should be.
    pub fn commit(&mut self, steps_done: u64) {
        let manifest =
            self.manifests.iter().rev().find(|manifest| manifest.steps_done == steps_done).unwrap();
        let broken = |part: &&SnapshotPart| !self.store.contains_key(&part.blob.hash.0);
        let event = match manifest.parts.iter().find(broken) {
            None => pipeline::Event::Committed { steps_done, state: format!("state of {steps_done}") },
            Some(part) => pipeline::Event::CommitFailed {
                steps_done,
                why: "a part is not there".into(),
                culprit: Some(part.worker),
            },
        };
        self.told(event);
    }

    /// Everything that can happen happens, in order.
    pub fn settle(&mut self) {
        let mut turns = 0;
        while self.happen(0) {
            turns += 1;
            assert!(turns < 100_000, "the run does not come to rest");
        }
    }

    /// Things happen, in order and the writing of manifests first, until the condition holds.
    pub fn until(&mut self, condition: impl Fn(&Self) -> bool) {
        let mut turns = 0;
        while !condition(self) {
            match self.commits.pop_front() {
                Some(steps_done) => self.commit(steps_done),
                None => assert!(self.happen(0), "nothing is left to happen: {}", self.reason()),
            }
            turns += 1;
            assert!(turns < 100_000, "it never comes: {}", self.reason());
        }
    }

    /// Time passes, in which everybody that is there is heard.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        for worker in self.peers.keys().copied().collect::<Vec<_>>() {
            self.handle(Event::Heard { worker });
        }
        self.handle(Event::Tick);
    }

    pub fn phase(&self) -> Phase {
        self.run.phase()
    }

    pub fn reason(&self) -> String {
        self.run.view(self.now).reason
    }

    pub fn step(&self) -> u64 {
        self.run.view(self.now).step
    }

    pub fn epoch(&self) -> u64 {
        self.run.view(self.now).epoch
    }

    /// Why each plan was made.
    pub fn plans(&self) -> Vec<String> {
        let why = |record: &Record| match record {
            Record::PlanMade { why, .. } => Some(why.clone()),
            _ => None,
        };
        self.records.iter().filter_map(why).collect()
    }

    /// The workers of the newest plan, from the embedding to the head.
    pub fn planned(&self) -> Vec<WorkerId> {
        let plan = self.records.iter().rev().find_map(|record| match record {
            Record::PlanMade { stages, .. } => Some(stages.iter().map(|(worker, _)| *worker).collect()),
            _ => None,
        });
        plan.unwrap_or_default()
    }

    /// What the weights of the newest manifest have seen.
    pub fn final_history(&self) -> History {
        let last = self.manifests.last().expect("there is a last snapshot");
        for part in &last.parts {
            let first = &last.parts[0].blob;
            assert_eq!(self.store[&part.blob.hash.0], self.store[&first.hash.0], "all parts are of one cut");
        }
        self.store[&last.parts[0].blob.hash.0].clone()
    }
}

/// What the weights must have seen after `steps`.
pub fn expected(steps: u64) -> History {
    (0..steps).flat_map(|s| (0..MICRO_BATCHES).map(move |m| (s, m))).collect()
}
