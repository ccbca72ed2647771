//! Whatever workers say that hold nothing, and whatever one says that lies in any field: the run finishes with every
//! piece of work counted once, no honest worker is turned away, and every view is JSON without loss.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use common::{
    assert_view_is_json, block,
    lies::{At, Lie, events, lie},
    pipeline,
};
use control::{
    Command, Event,
    block::evaluation::Evaluator,
    pipeline::{Manifest, SnapshotPart, plan::Stages},
};
use proptest::{collection::vec, prelude::*};
use protocol::{
    blob::BlobRef, delta::DeltaRefusal, message::EvaluationReport, spec::Part, view::Phase,
    worker_id::WorkerId,
};

/// One thing that happens.
#[derive(Debug, Clone)]
enum Move {
    /// So many true messages arrive.
    Turns(u8),
    /// The liar says something.
    Lie(Lie),
    /// The next thing that the liar has to say is not quite true.
    Twist(Lie),
    /// A worker that has not measured itself says something.
    Bystander(Lie),
    /// The liar says nothing any more, or does its work again.
    Silent(bool),
    Join(u8),
    Leave(u8),
    Seconds(u16),
    Pause,
    Start,
    /// New tokens of texts are to go through the stages.
    Traverse,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (1..20u8).prop_map(Move::Turns),
        6 => lie().prop_map(Move::Lie),
        6 => lie().prop_map(Move::Twist),
        3 => lie().prop_map(Move::Bystander),
        1 => any::<bool>().prop_map(Move::Silent),
        1 => (1..6u8).prop_map(Move::Join),
        1 => any::<u8>().prop_map(Move::Leave),
        2 => prop_oneof![1..30u16, 1..700u16].prop_map(Move::Seconds),
        1 => Just(Move::Pause),
        1 => Just(Move::Start),
        2 => Just(Move::Traverse),
    ];
    vec(one, 1..60)
}

/// A pipeline run with honest workers, one liar that comes back whenever it is turned away, and a bystander.
struct PipelineField {
    world: pipeline::World,
    honest: BTreeSet<WorkerId>,
    liar: WorkerId,
    bystander: WorkerId,
    twist: Option<Lie>,
    traversals: u64,
}

impl PipelineField {
    fn new(mut world: pipeline::World, honest: usize, first: bool) -> Self {
        let liar = first.then(|| world.join(1.0));
        let honest = (0..honest).map(|_| world.join(1.0)).collect();
        let liar = liar.unwrap_or_else(|| world.join(1.0));
        let bystander = world.join_unmeasured();
        Self { world, honest, liar, bystander, twist: None, traversals: 0 }
    }

    fn at(&self) -> At {
        At { during: self.world.epoch(), step: self.world.step() }
    }

    fn say(&mut self, worker: WorkerId, message: protocol::message::Up) {
        for event in events(worker, message) {
            if matches!(event, Event::Gone { .. }) {
                self.world.leave(worker);
            } else {
                self.world.handle(event);
            }
        }
    }

    /// Whoever was turned away, or has left, is back under another number.
    fn come_back(&mut self) {
        if self.is_over() {
            return;
        }
        if !self.world.knows(self.liar) {
            self.world.drop_peer(self.liar);
            self.liar = self.world.join(1.0);
        }
        if !self.world.knows(self.bystander) {
            self.world.drop_peer(self.bystander);
            self.bystander = self.world.join_unmeasured();
        }
    }

    /// One true message arrives, or one that the liar has twisted. False when nothing is left to arrive.
    fn turn(&mut self, choice: usize) -> bool {
        let Some(lie) = self.twist.clone() else { return self.world.happen(choice) };
        self.world.work();
        let Some(message) = self.world.take_said(self.liar) else { return self.world.happen(choice) };
        self.twist = None;
        let message = lie.twist(message, self.at());
        self.say(self.liar, message);
        true
    }

    /// Time passes; if the relay is asked, it names the liar where that owes something.
    fn pass(&mut self, time: Duration) {
        self.world.pass(time);
        if std::mem::take(&mut self.world.asked_owing) > 0 {
            let owes = self.world.owes_report(self.liar).then_some(self.liar);
            self.world.told(control::pipeline::Event::Owing(owes));
        }
    }

    fn act(&mut self, step: Move, choice: &mut impl FnMut() -> usize) {
        self.come_back();
        match step {
            Move::Turns(turns) => {
                for _ in 0..turns {
                    self.turn(choice());
                }
            }
            Move::Lie(lie) => self.say(self.liar, lie.message(self.at())),
            Move::Twist(lie) => self.twist = Some(lie),
            Move::Bystander(lie) => self.say(self.bystander, lie.message(self.at())),
            Move::Silent(silent) => {
                if let Some(peer) = self.world.peers.get_mut(&self.liar) {
                    peer.idle = silent;
                }
            }
            Move::Join(slow) if self.honest.len() < 5 && !self.is_over() => {
                self.honest.insert(self.world.join(f64::from(slow)));
            }
            Move::Leave(which) if !self.honest.is_empty() => {
                let worker = *self.honest.iter().nth(usize::from(which) % self.honest.len()).unwrap();
                self.honest.remove(&worker);
                self.world.leave(worker);
            }
            Move::Join(_) | Move::Leave(_) => {}
            Move::Seconds(seconds) => self.pass(Duration::from_secs(u64::from(seconds))),
            Move::Pause => self.world.handle(Event::Asked(Command::Pause)),
            Move::Start => self.world.handle(Event::Asked(Command::Start)),
            Move::Traverse => {
                self.traversals += 1;
                self.world.told(control::pipeline::Event::Traverse { number: self.traversals });
            }
        }
        assert_view_is_json(&self.world.run.view(self.world.now));
    }

    /// The liar goes, or stays and does nothing; the honest ones are left to finish.
    fn finish(&mut self, stays: bool, choice: &mut impl FnMut() -> usize) {
        self.twist = None;
        self.world.handle(Event::Asked(Command::Start));
        match self.world.peers.get_mut(&self.liar) {
            Some(peer) if stays => peer.idle = true,
            _ => self.world.leave(self.liar),
        }
        while self.honest.len() < 2 && !self.is_over() {
            self.honest.insert(self.world.join(1.0));
        }
        for _ in 0..50_000 {
            if self.is_over() {
                return;
            }
            if !self.world.happen(choice()) {
                self.pass(Duration::from_secs(5));
            }
        }
    }

    fn is_over(&self) -> bool {
        self.world.run.core().over.is_some()
    }

    fn assert_no_honest_worker_was_closed(&self) {
        for (worker, refusal) in &self.world.closed {
            assert!(!self.honest.contains(worker), "{worker}: {refusal}");
        }
    }
}

/// Choices taken in turn from a list.
fn choices(list: Vec<usize>) -> impl FnMut() -> usize {
    let mut next = 0;
    move || {
        next += 1;
        list[next % list.len()]
    }
}

/// A block-mode run with honest workers, one liar that comes back whenever it is turned away, and a bystander.
struct BlockField {
    world: block::World,
    honest: BTreeSet<WorkerId>,
    liar: WorkerId,
    bystander: WorkerId,
    silent: bool,
    twist: Option<Lie>,
    /// What the checks say of the liar's deltas.
    passes: bool,
}

impl BlockField {
    fn new(mut world: block::World, honest: usize) -> Self {
        let honest = (0..honest).map(|_| world.join(0)).collect();
        let liar = world.join(0);
        let bystander = world.arrive();
        Self { world, honest, liar, bystander, silent: false, twist: None, passes: true }
    }

    fn at(&self) -> At {
        let round = self.world.run.published().round;
        At { during: round, step: self.world.run.view(self.world.now).step }
    }

    fn say(&mut self, worker: WorkerId, message: protocol::message::Up) {
        for event in events(worker, message) {
            if matches!(event, Event::Gone { .. }) {
                self.world.leave(worker);
            } else {
                self.world.handle(event);
            }
        }
    }

    fn come_back(&mut self) {
        if self.world.run.core().over.is_some() {
            return;
        }
        let knows = |world: &block::World, worker| world.run.core().roster.contains(worker);
        if !knows(&self.world, self.liar) {
            self.world.tasks.remove(&self.liar);
            self.liar = self.world.join(0);
        }
        if !knows(&self.world, self.bystander) {
            self.world.tasks.remove(&self.bystander);
            self.bystander = self.world.arrive();
        }
    }

    /// A worker's delta and its evaluations.
    fn work(&mut self, worker: WorkerId) {
        let mut said = vec![];
        if let Some(Some(task)) = self.world.tasks.get(&worker).cloned()
            && self.world.delivered.insert((worker, task.round))
        {
            said.push(self.world.delta(worker, task.round, task.block).into());
        }
        let (own, others) = std::mem::take(&mut self.world.by_workers)
            .into_iter()
            .partition::<Vec<_>, _>(|(of, ..)| *of == worker);
        self.world.by_workers = others;
        said.extend(
            own.into_iter()
                .map(|(_, round, batch)| EvaluationReport { round, batch, scores: block::scores() }.into()),
        );
        for message in said {
            let lie = self.twist.take_if(|_| worker == self.liar);
            let message = match lie {
                Some(lie) => lie.twist(message, self.at()),
                None => message,
            };
            self.say(worker, message);
        }
    }

    fn everybody_works(&mut self) {
        for worker in self.honest.clone() {
            self.work(worker);
        }
        if !self.silent {
            self.work(self.liar);
        }
    }

    fn io(&mut self) {
        let (liar, passes) = (self.liar, self.passes);
        self.world.check(|worker| match worker == liar && !passes {
            true => Err(DeltaRefusal::Empty),
            false => Ok(1.0),
        });
        self.world.average();
        self.world.measure();
    }

    fn pass(&mut self, seconds: f64) {
        let all: Vec<WorkerId> = self.world.tasks.keys().copied().collect();
        for worker in all {
            self.world.handle(Event::Heard { worker });
        }
        self.world.pass(seconds);
    }

    fn act(&mut self, step: Move) {
        self.come_back();
        match step {
            Move::Turns(turns) if turns % 3 == 0 => self.io(),
            Move::Turns(turns) if turns % 3 == 1 => self.everybody_works(),
            Move::Turns(turns) => {
                let who = self.honest.iter().nth(usize::from(turns) % self.honest.len().max(1)).copied();
                if let Some(worker) = who {
                    self.work(worker);
                }
            }
            Move::Lie(lie) => self.say(self.liar, lie.message(self.at())),
            Move::Twist(lie) => self.twist = Some(lie),
            Move::Bystander(lie) => self.say(self.bystander, lie.message(self.at())),
            Move::Silent(silent) => (self.silent, self.passes) = (silent, !silent),
            Move::Join(_) if self.honest.len() < 5 && self.world.run.core().over.is_none() => {
                self.honest.insert(self.world.join(0));
            }
            Move::Leave(which) if !self.honest.is_empty() => {
                let worker = *self.honest.iter().nth(usize::from(which) % self.honest.len()).unwrap();
                self.honest.remove(&worker);
                self.world.leave(worker);
            }
            Move::Join(_) | Move::Leave(_) | Move::Traverse => {}
            Move::Seconds(seconds) => self.pass(f64::from(seconds)),
            Move::Pause => self.world.handle(Event::Asked(Command::Pause)),
            Move::Start => self.world.handle(Event::Asked(Command::Start)),
        }
        assert_view_is_json(&self.world.run.view(self.world.now));
    }

    fn finish(&mut self) {
        self.silent = true;
        self.world.handle(Event::Asked(Command::Start));
        while self.honest.len() < 3 && self.world.run.core().over.is_none() {
            self.honest.insert(self.world.join(0));
        }
        for _ in 0..500 {
            if self.world.run.core().over.is_some() {
                return;
            }
            self.everybody_works();
            self.io();
            self.pass(30.0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_pipeline_run_finishes_whatever_one_worker_says(
        moves in moves(),
        honest in 1..3usize,
        first in any::<bool>(),
        stays in any::<bool>(),
        list in vec(any::<usize>(), 64),
    ) {
        let steps = 10;
        let mut choice = choices(list);
        let mut settings = pipeline::settings(steps, 2);
        settings.run.cache_bytes = 1 << 20;
        let world = pipeline::World::new(settings, Stages::Auto, None);
        let mut field = PipelineField::new(world, honest, first);
        for step in moves {
            field.act(step, &mut choice);
        }
        field.finish(stays, &mut choice);
        let world = &field.world;
        prop_assert_eq!(world.phase(), Phase::Finished, "{}", world.reason());
        prop_assert_eq!(world.final_history(), pipeline::expected(steps));
        prop_assert_eq!(&world.points, &(1..=steps).collect::<Vec<_>>());
        field.assert_no_honest_worker_was_closed();
    }

    #[test]
    fn a_block_run_finishes_whatever_one_worker_says(
        moves in moves(),
        honest in 1..4usize,
        by_workers in any::<bool>(),
    ) {
        let evaluator = if by_workers { Evaluator::Workers } else { Evaluator::Coordinator };
        let world = block::World::new(block::settings(2, 20), block::round_settings(evaluator), block::published(0));
        let mut field = BlockField::new(world, honest);
        for step in moves {
            field.act(step);
        }
        field.finish();
        let world = &field.world;
        prop_assert_eq!(world.run.phase(), Phase::Finished, "{}", world.reason());
        prop_assert_eq!(world.rounds_closed(), (0..block::ROUNDS).collect::<Vec<_>>());
        let mut once = BTreeMap::new();
        for (round, worker, _) in &world.ledger {
            *once.entry((*round, *worker)).or_insert(0) += 1;
        }
        prop_assert!(once.values().all(|count| *count == 1), "no delta twice");
        prop_assert!(world.points.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", world.points);
        for (worker, refusal) in &world.closed {
            prop_assert!(!field.honest.contains(worker), "{worker}: {refusal}");
        }
    }

    #[test]
    fn counters_near_the_end_of_exact_numbers_do_not_overflow(
        moves in moves(),
        list in vec(any::<usize>(), 64),
    ) {
        let begun = (1 << 53) - 20;
        let blob = BlobRef::of(b"weights");
        let part = Part { embedding: true, first_layer: 0, end_layer: 4, head: true };
        let manifest = Manifest {
            steps_done: begun,
            epoch: begun,
            model: common::model(4),
            micro_batches: 3,
            state: "state".into(),
            parts: vec![SnapshotPart { blob, holds: vec![part], worker: WorkerId(1) }],
        };
        let mut settings = pipeline::settings(begun + 6, 2);
        settings.run.cache_bytes = 1 << 20;
        let mut world = pipeline::World::new(settings, Stages::Auto, Some(manifest));
        world.store.insert(blob.hash.0, vec![]);
        let mut choice = choices(list);
        let mut field = PipelineField::new(world, 2, true);
        for step in moves {
            field.act(step, &mut choice);
        }
        field.finish(true, &mut choice);
        prop_assert_eq!(field.world.phase(), Phase::Finished, "{}", field.world.reason());
        prop_assert_eq!(field.world.step(), begun + 6);
        field.assert_no_honest_worker_was_closed();

        let mut rounds = block::round_settings(Evaluator::Coordinator);
        rounds.rounds = begun + 3;
        let mut settings = block::settings(1, 20);
        settings.steps = u64::MAX;
        settings.snapshot_every = 0;
        let mut world = block::World::new(settings, rounds, block::published(begun));
        world.join(0);
        for _ in 0..3 {
            world.round();
            world.measure();
        }
        prop_assert_eq!(world.run.phase(), Phase::Finished);
    }
}
