//! The run machine under a virtual clock, with workers that answer as real ones do.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use coordinator::{
    plan::Stages,
    run::{
        event::{Action, Command, Event, Half, Record, WorkerId},
        machine::{Machine, Settings},
        relay::Relay,
        snapshot::Manifest,
    },
};
use engine::learning_rate::LearningRate;
use proptest::prelude::*;
use protocol::{
    blob::BlobRef,
    message::{
        Fault, FaultKind, Hello, Message, Pass, PassSeconds, Profile, SnapshotReady, StepReport, Timings,
        ValidationReport, Vitals, WorkerKind,
    },
    refusal::Refusal,
    spec::{Assignment, Backend, ModelSpec, Moments, OptimizerSpec, RunSpec, WeightSource},
    tensor::Encoding,
    view::Phase,
};

const LEASE: Duration = Duration::from_secs(30);

fn settings(steps: u64, stages: Stages, start_with: u32) -> Settings {
    Settings {
        run: RunSpec {
            name: "test".into(),
            model: ModelSpec {
                vocabulary: 16,
                positions: 8,
                width: 4,
                heads: 2,
                layers: 4,
                tie_embeddings: false,
            },
            optimizer: OptimizerSpec {
                beta1: 0.9,
                beta2: 0.95,
                epsilon: 1e-8,
                weight_decay: 0.1,
                clip_norm: 1.0,
            },
            sequences: 2,
            context: 8,
            micro_batches: 3,
            recompute: false,
            wire: Encoding::F32,
            moments: Moments::Full,
            blocks: None,
        },
        steps,
        seed: 1,
        stages,
        start_with,
        learning_rate: LearningRate { peak: 1e-3, floor: 1e-4, warmup_steps: 2, total_steps: steps },
        validate_every: 2,
        validation_batches: 2,
        snapshot_every: 3,
        heartbeat: Duration::from_secs(5),
        lease: LEASE,
        step_deadline: Duration::from_secs(600),
        max_workers: 8,
        corpus: "text".into(),
        tokenizer: "bytes".into(),
        train_tokens: 1000,
    }
}

/// A worker as the machine sees it. It "trains" by remembering which micro-batches its weights have seen:
/// the weights of a stage are that history, so that a lost or doubled micro-batch shows.
#[derive(Default, Clone)]
struct Peer {
    assignment: Option<Assignment>,
    history: Vec<(u64, u32)>,
    step: u64,
    inputs: BTreeSet<Pass>,
    reported: bool,
    slow: f64,
    /// Its steps take this many times as long as it measured.
    throttle: f64,
}

/// Forward takes a third.
fn share(seconds: f64) -> PassSeconds {
    PassSeconds { forward: seconds / 3.0, backward: seconds * 2.0 / 3.0 }
}

/// The machine and its world: peers, the store, the clock.
struct World {
    machine: Machine,
    now: Duration,
    peers: BTreeMap<WorkerId, Peer>,
    /// What peers have said and the machine has not heard.
    said: VecDeque<(WorkerId, Message)>,
    /// Snapshot parts: blob to (steps done, history).
    store: BTreeMap<BlobKey, Vec<(u64, u32)>>,
    manifests: Vec<Manifest>,
    commits: VecDeque<u64>,
    closed: Vec<(WorkerId, Refusal)>,
    points: Vec<u64>,
    /// Why each plan was made.
    plans: Vec<String>,
    next: u64,
    relay: Option<Relay>,
    open: Option<u64>,
}

/// Blobs as map keys.
type BlobKey = [u8; 32];

impl World {
    fn new(settings: Settings, resume: Option<Manifest>) -> Self {
        Self {
            machine: Machine::new(settings, resume),
            now: Duration::ZERO,
            peers: BTreeMap::new(),
            said: VecDeque::new(),
            store: BTreeMap::new(),
            manifests: vec![],
            commits: VecDeque::new(),
            closed: vec![],
            points: vec![],
            plans: vec![],
            next: 1,
            relay: None,
            open: None,
        }
    }

    fn handle(&mut self, event: Event) {
        for action in self.machine.handle(self.now, event) {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send { worker, message } => self.tell(worker, message),
            Action::SendBatch { worker, to, half: Half::Inputs } => {
                assert_eq!(Some(to.step), self.open, "batches are of the open step");
                // Every stage sees every micro-batch: the pipeline between them is not modelled here.
                let _ = worker;
                for peer in self.peers.values_mut() {
                    if peer.assignment.as_ref().is_some_and(|a| a.epoch == to.epoch) {
                        peer.inputs.insert(to.pass);
                    }
                }
            }
            Action::SendBatch { .. } => {}
            Action::Route(relay) => {
                self.relay = Some(relay);
                self.open = None;
            }
            Action::OpenStep { step } => self.open = Some(step),
            Action::Close { worker, refusal } => {
                self.peers.remove(&worker);
                self.closed.push((worker, refusal));
            }
            Action::Commit(manifest) => {
                self.commits.push_back(manifest.steps_done);
                self.manifests.push(manifest);
            }
            Action::Prune { accepted } => {
                assert_eq!(self.machine.snapshot().map(|m| m.steps_done), Some(accepted));
            }
            Action::SendWindows { .. }
            | Action::CheckDelta { .. }
            | Action::Average { .. }
            | Action::Evaluate { .. } => panic!("an action of block mode"),
            Action::Record(Record::PlanMade { why, .. }) => self.plans.push(why),
            Action::Record(_) => {}
            Action::Point(point) => {
                self.points.retain(|step| *step < point.step);
                self.points.push(point.step);
            }
        }
    }

    fn tell(&mut self, worker: WorkerId, message: Message) {
        let Some(peer) = self.peers.get_mut(&worker) else { return };
        let mut say = |m| self.said.push_back((worker, m));
        match message {
            Message::Benchmark => say(Message::Profile(Profile {
                backend: Backend::Cpu,
                device: "test".into(),
                threads: 1,
                memory_bytes: 0,
                layer: share(peer.slow),
                embedding: share(0.1 * peer.slow),
                head_seconds: 0.2 * peer.slow,
                link: None,
            })),
            Message::Assign(assignment) => {
                peer.history = match &assignment.weights {
                    WeightSource::Seed(_) => vec![],
                    WeightSource::Snapshot(parts) => self.store[&parts[0].hash.0].clone(),
                };
                peer.step = assignment.first_step;
                peer.inputs.clear();
                peer.reported = false;
                say(Message::Ready { epoch: assignment.epoch });
                peer.assignment = Some(assignment);
            }
            Message::Apply(apply) => {
                let Some(a) = &peer.assignment else { return };
                if apply.epoch != a.epoch {
                    return;
                }
                assert_eq!(apply.step, peer.step, "steps are applied in order");
                peer.history.extend((0..3).map(|m| (apply.step, m)));
                peer.step += 1;
                peer.inputs.clear();
                peer.reported = false;
                if apply.snapshot {
                    let text = format!("{worker} {} {:?}", a.epoch, peer.history);
                    let blob = BlobRef::of(text.as_bytes());
                    self.store.insert(blob.hash.0, peer.history.clone());
                    say(Message::SnapshotReady(SnapshotReady {
                        epoch: a.epoch,
                        steps_done: peer.step,
                        blob,
                    }));
                }
            }
            Message::Revoke { .. } => peer.assignment = None,
            _ => {}
        }
    }

    /// Let a peer do its share of the open step.
    fn work(&mut self, worker: WorkerId) {
        let Some(peer) = self.peers.get_mut(&worker) else { return };
        let Some(a) = peer.assignment.clone() else { return };
        let last = a.hops.iter().any(|h| h.index + 1 == a.hop_count);
        if last {
            for pass in peer.inputs.clone() {
                if let Pass::Validate { batch } = pass {
                    peer.inputs.remove(&pass);
                    let report = ValidationReport { epoch: a.epoch, step: peer.step, batch, loss: 2.0 };
                    self.said.push_back((worker, Message::ValidationReport(report)));
                }
            }
        }
        let all = (0..3).all(|m| peer.inputs.contains(&Pass::Train { micro_batch: m }));
        if all && !peer.reported {
            peer.reported = true;
            let report = StepReport {
                epoch: a.epoch,
                step: peer.step,
                squared_norm: 1.0,
                losses: if last { vec![3.0; 3] } else { vec![] },
                timings: {
                    let layers: u32 = a.hops.iter().map(|h| h.part.end_layer - h.part.first_layer).sum();
                    let ends = a.hops.iter().map(|h| {
                        0.1 * f64::from(h.part.embedding as u8) + 0.2 * f64::from(h.part.head as u8)
                    });
                    let seconds = 3.0 * peer.slow * peer.throttle * (f64::from(layers) + ends.sum::<f64>());
                    let PassSeconds { forward, backward } = share(seconds);
                    Timings { forward, backward, ..Timings::default() }
                },
                vitals: Vitals::default(),
            };
            self.said.push_back((worker, Message::StepReport(report)));
        }
    }

    fn join(&mut self, slow: f64) -> WorkerId {
        let worker = WorkerId(self.next);
        self.next += 1;
        self.peers.insert(worker, Peer { slow, throttle: 1.0, ..Peer::default() });
        let hello = Hello { protocol: 1, build: "t".into(), kind: WorkerKind::Native, name: "t".into() };
        self.handle(Event::Joined { worker, hello, token: "t".into() });
        worker
    }

    fn leave(&mut self, worker: WorkerId) {
        self.peers.remove(&worker);
        self.handle(Event::Gone { worker, why: "closed".into() });
    }

    /// One thing happens; which one is for `choice` to say. False when nothing is left to happen.
    fn happen(&mut self, choice: usize) -> bool {
        self.now += Duration::from_millis(100);
        for worker in self.peers.keys().copied().collect::<Vec<_>>() {
            self.work(worker);
        }
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
            self.handle(Event::Said { worker, message });
        } else if let Some(steps_done) = self.commits.pop_front() {
            self.handle(Event::Committed { steps_done, state: format!("state of {steps_done}") });
        }
        true
    }

    fn settle(&mut self) {
        let mut turns = 0;
        while self.happen(0) {
            turns += 1;
            assert!(turns < 100_000, "the run does not come to rest");
        }
    }

    fn phase(&self) -> Phase {
        self.machine.phase()
    }
}

/// What the weights must have seen after `steps`.
fn expected(steps: u64) -> Vec<(u64, u32)> {
    (0..steps).flat_map(|s| (0..3).map(move |m| (s, m))).collect()
}

fn final_history(world: &World) -> Vec<(u64, u32)> {
    let last = world.manifests.last().expect("there is a last snapshot");
    for part in &last.parts {
        let first = &last.parts[0].blob;
        assert_eq!(world.store[&part.blob.hash.0], world.store[&first.hash.0], "all parts are of one cut");
    }
    world.store[&last.parts[0].blob.hash.0].clone()
}

#[test]
fn a_single_worker_takes_every_step_and_the_run_finishes() {
    let mut world = World::new(settings(7, Stages::Auto, 1), None);
    assert_eq!(world.phase(), Phase::Waiting);
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(final_history(&world), expected(7));
    assert_eq!(world.points, (1..=7).collect::<Vec<_>>());
    let curve = world.machine.curve();
    let measured: Vec<u64> = curve.iter().filter(|p| p.validation_loss.is_some()).map(|p| p.step).collect();
    assert_eq!(measured, [2, 4, 6, 7], "every second step, and the last");
    assert_eq!(world.machine.snapshot().map(|m| m.steps_done), Some(7));
}

#[test]
fn the_first_plan_waits_for_the_workers_asked_for() {
    let mut world = World::new(settings(2, Stages::Auto, 2), None);
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Waiting);
    assert_eq!(world.machine.view(world.now).reason, "1 of 2 workers are ready");
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.manifests.last().unwrap().parts.len(), 2, "the model was split over both");
}

#[test]
fn a_newcomer_takes_over_layers_at_the_next_step_without_a_step_lost_or_repeated() {
    let mut world = World::new(settings(9, Stages::Auto, 1), None);
    world.join(1.0);
    for _ in 0..12 {
        world.happen(0);
    }
    assert_eq!(world.phase(), Phase::Training);
    world.join(1.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.manifests.last().unwrap().parts.len(), 2);
    assert_eq!(final_history(&world), expected(9));
}

#[test]
fn a_newcomer_that_leaves_at_once_moves_nothing() {
    let mut world = World::new(settings(9, Stages::Auto, 1), None);
    world.join(1.0);
    for _ in 0..12 {
        world.happen(0);
    }
    let newcomer = world.join(1.0);
    while world.said.iter().any(|(worker, _)| *worker == newcomer) {
        let at = world.said.iter().position(|(worker, _)| *worker == newcomer).unwrap();
        let (worker, message) = world.said.remove(at).unwrap();
        world.handle(Event::Said { worker, message });
    }
    world.leave(newcomer);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.plans.len(), 1, "{:?}", world.plans);
}

#[test]
fn a_much_slower_newcomer_is_kept_as_a_spare() {
    let mut world = World::new(settings(6, Stages::Auto, 1), None);
    world.join(1.0);
    world.join(1000.0);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.manifests.last().unwrap().parts.len(), 1);
}

#[test]
fn when_a_stage_vanishes_the_run_goes_on_from_the_last_snapshot() {
    let mut world = World::new(settings(8, Stages::Auto, 2), None);
    let first = world.join(1.0);
    world.join(1.0);
    while world.machine.snapshot().is_none() {
        assert!(world.happen(0));
    }
    for _ in 0..3 {
        world.happen(0);
    }
    world.leave(first);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(final_history(&world), expected(8));
    assert_eq!(world.points, (1..=8).collect::<Vec<_>>());
}

#[test]
fn a_silent_worker_loses_its_lease_and_one_that_beats_does_not() {
    let mut world = World::new(settings(1000, Stages::Auto, 2), None);
    let silent = world.join(1.0);
    let alive = world.join(1.0);
    world.now += LEASE;
    world.handle(Event::Said { worker: alive, message: Message::Heartbeat });
    world.now += Duration::from_secs(1);
    world.handle(Event::Tick);
    assert_eq!(world.closed, [(silent, Refusal::LeaseEnded { seconds: 30 })]);
    assert!(world.peers.contains_key(&alive));
}

#[test]
fn pause_holds_at_a_step_boundary_and_start_goes_on() {
    let mut world = World::new(settings(20, Stages::Auto, 1), None);
    world.join(1.0);
    for _ in 0..9 {
        world.happen(0);
    }
    world.handle(Event::Asked(Command::Pause));
    world.settle();
    assert_eq!(world.phase(), Phase::Paused);
    let done = world.machine.view(world.now).step;
    assert!(done < 20);
    world.handle(Event::Asked(Command::Start));
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(final_history(&world), expected(20));
}

#[test]
fn stop_saves_the_weights_first() {
    let mut world = World::new(settings(1000, Stages::Auto, 1), None);
    world.join(1.0);
    for _ in 0..20 {
        world.happen(0);
    }
    world.handle(Event::Asked(Command::Stop));
    world.settle();
    assert_eq!(world.phase(), Phase::Stopped);
    let done = world.machine.view(world.now).step;
    assert_eq!(final_history(&world), expected(done));
}

#[test]
fn stop_after_pause_ends_the_run() {
    for turns in 1..30 {
        let mut world = World::new(settings(1000, Stages::Auto, 1), None);
        world.join(1.0);
        for _ in 0..turns {
            world.happen(0);
        }
        world.handle(Event::Asked(Command::Pause));
        world.settle();
        world.handle(Event::Asked(Command::Stop));
        world.settle();
        assert_eq!(world.phase(), Phase::Stopped, "after {turns} turns");
    }
}

#[test]
fn a_resumed_run_goes_on_where_the_manifest_says() {
    let mut world = World::new(settings(7, Stages::Auto, 1), None);
    world.join(1.0);
    while world.machine.snapshot().is_none() {
        world.happen(world.said.len()); // a commit, if there is one
    }
    let manifest = world.machine.snapshot().unwrap().clone();
    assert_eq!(manifest.steps_done, 3);
    let mut resumed = World::new(settings(7, Stages::Auto, 1), Some(manifest.clone()));
    resumed.store = world.store.clone();
    resumed.join(1.0);
    resumed.settle();
    assert_eq!(resumed.phase(), Phase::Finished);
    assert_eq!(final_history(&resumed), expected(7));
    assert_eq!(resumed.points.first(), Some(&(manifest.steps_done + 1)));
}

#[test]
fn nan_takes_the_step_back_and_ends_the_run_when_it_comes_again_and_again() {
    let mut world = World::new(settings(50, Stages::Auto, 1), None);
    let worker = world.join(1.0);
    for round in 0..3 {
        while !matches!(world.said.front(), Some((_, Message::StepReport(_)))) {
            assert!(world.happen(0), "round {round}");
        }
        let Some((_, Message::StepReport(report))) = world.said.pop_front() else { unreachable!() };
        let bad = StepReport { squared_norm: f64::NAN, ..report };
        world.handle(Event::Said { worker, message: Message::StepReport(bad) });
    }
    assert_eq!(world.phase(), Phase::Stopped);
    let reason = world.machine.view(world.now).reason;
    assert!(reason.contains("NaN or infinity") && reason.contains("worker 1"), "{reason}");
}

#[test]
fn a_broken_tensor_takes_the_step_back_and_the_run_finishes() {
    let mut world = World::new(settings(5, Stages::Auto, 1), None);
    let worker = world.join(1.0);
    for _ in 0..8 {
        world.happen(0);
    }
    let epoch = world.machine.view(world.now).epoch;
    let fault = Fault { epoch, kind: FaultKind::BadTensor, detail: "checksum".into() };
    world.handle(Event::Said { worker, message: Message::Fault(fault) });
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(final_history(&world), expected(5));
}

#[test]
fn what_a_worker_may_not_say_closes_its_connection_with_words() {
    let mut world = World::new(settings(5, Stages::Auto, 1), None);
    let a = world.join(1.0);
    world.handle(Event::Said { worker: a, message: Message::Benchmark });
    assert!(matches!(&world.closed[..], [(w, Refusal::Unexpected { .. })] if *w == a));

    let b = world.join(f64::NAN);
    world.settle();
    assert!(matches!(&world.closed[1..], [(w, Refusal::BadProfile { .. })] if *w == b));
}

#[test]
fn the_run_is_full_at_its_limit_and_over_after_its_end() {
    let mut world = World::new(settings(1, Stages::Exactly(8), 8), None);
    for _ in 0..8 {
        world.join(1.0);
    }
    let ninth = world.join(1.0);
    assert_eq!(world.closed, [(ninth, Refusal::Full { workers: 8 })]);

    let mut over = World::new(settings(1, Stages::Auto, 1), None);
    over.join(1.0);
    over.settle();
    let late = over.join(1.0);
    assert_eq!(over.closed, [(late, Refusal::RunOver)]);
}

#[test]
fn a_step_of_which_nothing_is_heard_is_done_again() {
    let mut world = World::new(settings(6, Stages::Auto, 1), None);
    let worker = world.join(1.0);
    while !matches!(world.said.front(), Some((_, Message::StepReport(_)))) {
        assert!(world.happen(0));
    }
    // Its report is lost on the way; its heart goes on beating.
    world.said.pop_front();
    let hung = world.machine.view(world.now).epoch;
    for _ in 0..61 {
        world.now += Duration::from_secs(10);
        world.handle(Event::Said { worker, message: Message::Heartbeat });
        world.handle(Event::Tick);
    }
    assert!(world.machine.view(world.now).epoch > hung);
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(final_history(&world), expected(6));
}

#[test]
fn a_worker_three_times_slower_causes_one_hand_over_and_no_more() {
    let mut world = World::new(settings(300, Stages::Auto, 2), None);
    let throttled = world.join(1.0);
    world.join(1.0);
    while world.machine.view(world.now).step < 20 {
        assert!(world.happen(0));
    }
    assert_eq!(world.plans.len(), 1);
    world.peers.get_mut(&throttled).unwrap().throttle = 3.0;
    world.settle();
    assert_eq!(world.phase(), Phase::Finished);
    assert_eq!(world.plans[1..], ["the devices' speeds have changed"]);
    let layers = |w: WorkerId| {
        let hops = &world.peers[&w].assignment.as_ref().unwrap().hops;
        hops.iter().map(|h| h.part.end_layer - h.part.first_layer).sum::<u32>()
    };
    assert_eq!(layers(throttled), 1, "it keeps a small share");
    assert_eq!(final_history(&world), expected(300));
    let view = world.machine.view(world.now);
    let worker = view.workers.iter().find(|w| w.id == throttled.0).unwrap();
    assert!((worker.pace - 3.0).abs() < 0.1, "{}", worker.pace);
}

#[test]
fn a_worker_whose_speed_wavers_causes_no_hand_over() {
    let mut world = World::new(settings(300, Stages::Auto, 2), None);
    let wavering = world.join(1.0);
    world.join(1.0);
    let mut turn = 0;
    while world.phase() != Phase::Finished {
        turn += 1;
        world.peers.get_mut(&wavering).unwrap().throttle = if turn % 40 < 8 { 2.5 } else { 1.0 };
        assert!(world.happen(0));
    }
    assert_eq!(world.plans.len(), 1, "{:?}", world.plans);
}

#[test]
fn a_spare_measures_itself_again_and_is_used_when_it_has_recovered() {
    let mut world = World::new(settings(1000, Stages::Auto, 1), None);
    world.join(1.0);
    let slow = world.join(1000.0);
    for _ in 0..40 {
        world.happen(0);
    }
    assert!(world.peers[&slow].assignment.is_none());
    world.peers.get_mut(&slow).unwrap().slow = 1.0;
    world.now += Duration::from_secs(61);
    for worker in world.peers.keys().copied().collect::<Vec<_>>() {
        world.handle(Event::Heard { worker });
    }
    world.handle(Event::Tick);
    for _ in 0..200 {
        world.happen(0);
    }
    assert!(world.peers[&slow].assignment.is_some());
    assert_eq!(world.plans.len(), 2, "{:?}", world.plans);
}

#[test]
fn m_is_chosen_when_nobody_says_and_stays() {
    let mut settings = settings(9, Stages::Exactly(2), 2);
    settings.run.micro_batches = 0;
    let mut machine = Machine::new(settings.clone(), None);
    assert_eq!(machine.micro_batches(), 0);
    let mut assigned = vec![];
    for worker in [1, 2].map(WorkerId) {
        let hello =
            Hello { protocol: 1, build: "test".into(), kind: WorkerKind::Native, name: worker.to_string() };
        machine.handle(Duration::ZERO, Event::Joined { worker, hello, token: String::new() });
        let profile = Profile {
            backend: Backend::Cpu,
            device: "test".into(),
            threads: 1,
            memory_bytes: 0,
            layer: share(1.0),
            embedding: share(0.1),
            head_seconds: 0.2,
            link: None,
        };
        for action in
            machine.handle(Duration::ZERO, Event::Said { worker, message: Message::Profile(profile) })
        {
            if let Action::Send { message: Message::Assign(assignment), .. } = action {
                assigned.push(assignment.micro_batches);
            }
        }
    }
    let chosen = machine.micro_batches();
    // Two even stages: a bubble of 1 in M + 1.
    assert!((16..=32).contains(&chosen), "{chosen}");
    assert_eq!(assigned, [chosen, chosen]);
    let manifest = Manifest {
        steps_done: 3,
        epoch: 1,
        model: settings.run.model.clone(),
        micro_batches: chosen,
        state: String::new(),
        parts: vec![],
    };
    assert_eq!(Machine::new(settings, Some(manifest)).micro_batches(), chosen, "a resumed run keeps it");
}

#[test]
fn a_model_too_large_for_all_devices_is_refused_in_gigabytes() {
    use coordinator::plan::{self, Measured};
    let mut run = settings(1, Stages::Auto, 1).run;
    run.model = ModelSpec {
        vocabulary: 50257,
        positions: 1024,
        width: 1024,
        heads: 16,
        layers: 24,
        tie_embeddings: false,
    };
    let laptop = |id| Measured {
        worker: WorkerId(id),
        layer: share(1.0),
        embedding: share(0.1),
        head_seconds: 0.2,
        memory_bytes: 4 << 30,
        link: None,
    };
    let words = plan::make(&run, Stages::Auto, &[laptop(1), laptop(2)]).unwrap_err().to_string();
    assert!(words.starts_with("the model does not fit into the memory of 2 devices: it needs "), "{words}");
    assert!(words.contains(" GB more; ") && words.contains(" more like them or a narrower model"), "{words}");
    let plan = plan::make(&run, Stages::Auto, &(1..=8).map(laptop).collect::<Vec<_>>()).unwrap();
    for stage in &plan.stages {
        assert!(stage.memory_bytes <= 4 << 30, "{stage:?}");
    }
}

#[derive(Debug, Clone)]
enum Disturbance {
    Join(u8),
    Leave(u8),
    Pause,
    Start,
}

fn disturbances() -> impl Strategy<Value = Vec<(u8, Disturbance)>> {
    let one = prop_oneof![
        4 => (1u8..6).prop_map(Disturbance::Join),
        4 => any::<u8>().prop_map(Disturbance::Leave),
        1 => Just(Disturbance::Pause),
        1 => Just(Disturbance::Start),
    ];
    prop::collection::vec((0u8..40, one), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whoever comes and goes, whatever the order in which messages arrive: every micro-batch of every step is
    /// in the final weights exactly once, and the curve has every step once.
    #[test]
    fn every_micro_batch_counts_once_under_any_order_of_joins_and_leaves(
        plan in disturbances(),
        choices in prop::collection::vec(any::<usize>(), 64),
    ) {
        let steps = 10;
        let mut world = World::new(settings(steps, Stages::Auto, 1), None);
        world.join(1.0);
        let mut turn = 0;
        let mut choice = || {
            turn += 1;
            choices[turn % choices.len()]
        };
        for (turns, disturbance) in plan {
            for _ in 0..turns {
                world.happen(choice());
            }
            match disturbance {
                Disturbance::Join(slow) => {
                    world.join(f64::from(slow));
                }
                Disturbance::Leave(which) => {
                    let ids: Vec<_> = world.peers.keys().copied().collect();
                    if !ids.is_empty() {
                        world.leave(ids[usize::from(which) % ids.len()]);
                    }
                }
                Disturbance::Pause => world.handle(Event::Asked(Command::Pause)),
                Disturbance::Start => world.handle(Event::Asked(Command::Start)),
            }
        }
        world.handle(Event::Asked(Command::Start));
        world.join(1.0);
        for _ in 0..20_000 {
            if !world.happen(choice()) {
                break;
            }
        }
        prop_assert_eq!(world.phase(), Phase::Finished, "{}", world.machine.view(world.now).reason);
        prop_assert_eq!(final_history(&world), expected(steps));
        prop_assert_eq!(&world.points, &(1..=steps).collect::<Vec<_>>());
    }
}
