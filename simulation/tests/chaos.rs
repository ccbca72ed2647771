//! Runs that are disturbed at any point end with the weights of a run that was not.
#![allow(clippy::unwrap_used)]

mod virtual_time;

use std::time::Duration;

use coordinator::{plan::Stages, run::machine::Settings};
use engine::{
    device::Device,
    learning_rate::LearningRate,
    parameters::{ParameterSet, Quantity},
    shapes,
};
use futures::executor::block_on;
use protocol::{
    spec::{Hop, ModelSpec, Moments, OptimizerSpec, RunSpec},
    tensor::Encoding,
    view::Phase,
};
use virtual_time::{Computer, Disturbance, What};

/// Seeded schedules of disturbances.
const SCHEDULES: u64 = 500;
/// Virtual seconds after which a run that is not over hangs.
const LIMIT: f64 = 20_000.0;
/// Largest difference of a weight. Within a layer every split computes the same; only the sum of the squared norms
/// over stages is added up in another order, which moves the clip factor by a rounding error.
const TOLERANCE: f32 = 1e-5;

fn settings() -> Settings {
    Settings {
        run: RunSpec {
            name: "chaos".into(),
            model: ModelSpec {
                vocabulary: 11,
                positions: 4,
                width: 8,
                heads: 2,
                layers: 3,
                tie_embeddings: false,
            },
            optimizer: OptimizerSpec {
                beta1: 0.9,
                beta2: 0.95,
                epsilon: 1e-8,
                weight_decay: 0.1,
                clip_norm: 0.5,
            },
            sequences: 1,
            context: 4,
            micro_batches: 2,
            recompute: false,
            wire: Encoding::F32,
            moments: Moments::Full,
            blocks: None,
        },
        steps: 7,
        seed: 5,
        stages: Stages::Auto,
        start_with: 1,
        learning_rate: LearningRate { peak: 1e-2, floor: 1e-3, warmup_steps: 2, total_steps: 7 },
        validate_every: 3,
        validation_batches: 1,
        snapshot_every: 2,
        heartbeat: Duration::from_secs(5),
        lease: Duration::from_secs(30),
        step_deadline: Duration::from_secs(300),
        max_workers: 16,
        corpus: "text".into(),
        tokenizer: "bytes".into(),
        train_tokens: 1000,
    }
}

/// All weights at the end of a run, in order.
fn weights(computer: &Computer, words: &str) -> Vec<f32> {
    let world = computer.world.borrow();
    let manifest = world.committed.as_ref().unwrap();
    assert_eq!(manifest.steps_done, settings().steps, "{words}");
    let parts: Vec<&Vec<u8>> = manifest.parts.iter().map(|p| &world.blobs[&p.blob.hash]).collect();
    let model = settings().run.model;
    let whole = [Hop { index: 0, part: shapes::whole(&model) }];
    let set = ParameterSet::import(&model, &whole, &parts, &Device::Host).unwrap();
    let read = |index| block_on(set.read(index, Quantity::Value)).unwrap().into_owned();
    (0..set.shapes().len()).flat_map(read).collect()
}

fn undisturbed() -> (Vec<f32>, u64) {
    let mut computer = Computer::new(0, settings(), vec![]);
    computer.join();
    assert_eq!(computer.run(LIMIT), Phase::Finished);
    let carried = computer.world.borrow().carried;
    (weights(&computer, "undisturbed"), carried)
}

/// A few disturbances anywhere in a run, and at the end somebody healthy.
fn schedule(seed: u64, carried: u64) -> (u64, Vec<Disturbance>) {
    let mut random = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
    let mut draw = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let workers = 1 + draw(4);
    let mut faults = 0;
    let disturbances = (0..draw(7))
        .map(|_| {
            let what = match draw(17) {
                0..=3 => What::Join,
                4..=6 => What::Kill,
                7..=8 => What::Cut,
                9 => What::HoldUp(1 + draw(20) as u32),
                10 => What::HoldUp(40 + draw(60) as u32),
                11 => What::Double,
                12 => What::Swap,
                // The run gives up after three faults between two snapshots, which is tested elsewhere.
                13 if faults < 2 => {
                    faults += 1;
                    What::Garble
                }
                14 if faults < 2 => {
                    faults += 1;
                    What::Lose
                }
                _ => What::KillCoordinator(draw(8) as u32),
            };
            // More workers carry more messages.
            Disturbance { after: draw(carried * 4), what, whom: draw(1 << 20) }
        })
        .collect();
    (workers, disturbances)
}

#[test]
fn whatever_happens_the_weights_are_those_of_an_undisturbed_run() {
    let (expected, carried) = undisturbed();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let play = |seed: u64| {
        let (workers, disturbances) = schedule(seed, carried);
        let words = format!("seed {seed}, {workers} workers, {disturbances:?}");
        let mut computer = Computer::new(seed, settings(), disturbances);
        for _ in 0..workers {
            computer.join();
        }
        let mut phase = computer.run(LIMIT / 2.0);
        if phase != Phase::Finished {
            // Everybody may be dead.
            computer.calm();
            computer.join();
            phase = computer.run(LIMIT);
        }
        let reason = {
            let world = computer.world.borrow();
            world.machine.view(Duration::from_secs_f64(world.now)).reason
        };
        assert_eq!(phase, Phase::Finished, "{words}: {reason}");
        let found = weights(&computer, &words);
        let worst = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= TOLERANCE, "{words}: a weight is off by {worst}");
    };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let play = &play;
            scope.spawn(move || (thread..SCHEDULES).step_by(threads as usize).for_each(play));
        }
    });
}

#[test]
fn a_worker_may_die_at_every_single_message() {
    let (expected, _) = undisturbed();
    let disturbed = |after: Option<u64>| {
        let what = |after| Disturbance { after, what: What::Kill, whom: 0 };
        let mut computer = Computer::new(1, settings(), after.map(what).into_iter().collect());
        computer.join();
        computer.join();
        assert_eq!(computer.run(LIMIT), Phase::Finished, "killed after {after:?} messages");
        let carried = computer.world.borrow().carried;
        (weights(&computer, "one killed"), carried)
    };
    let (_, carried) = disturbed(None);
    assert!(carried > 100);
    for after in 0..carried {
        let (found, _) = disturbed(Some(after));
        let worst = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= TOLERANCE, "killed after {after} messages: a weight is off by {worst}");
    }
}

#[test]
fn a_coordinator_killed_at_every_single_message_comes_back_to_the_same_state_hash() {
    let state = |after: Option<u64>| {
        let what = |after| Disturbance { after, what: What::KillCoordinator(1), whom: 0 };
        let mut settings = settings();
        settings.stages = Stages::Exactly(2);
        let mut computer = Computer::new(1, settings, after.map(what).into_iter().collect());
        computer.join();
        computer.join();
        assert_eq!(computer.run(LIMIT), Phase::Finished, "killed after {after:?} messages");
        let world = computer.world.borrow();
        (world.committed.as_ref().unwrap().state.clone(), world.carried)
    };
    let (expected, carried) = state(None);
    for after in 0..carried {
        // Not even the rounding differs: two stages before, two after.
        assert_eq!(state(Some(after)).0, expected, "killed after {after} messages");
    }
}
