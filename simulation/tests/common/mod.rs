//! Tiny runs of both modes in virtual time, and schedules of disturbances.
#![allow(dead_code, clippy::unwrap_used)]

use std::time::Duration;

use control::{
    Settings,
    block::{RoundSettings, deadline::DeadlinePolicy, evaluation::Evaluator},
    learning_rate::LearningRate,
    mix::mix,
    pipeline::Half,
};
use engine::{
    aggregation::{Aggregator, OuterStep, server::Rules},
    denoiser::{schedule, shapes},
};
use protocol::{
    message::{Address, Pass},
    spec::RunSpec,
};
use simulation::{
    BlockSetup, Windows,
    disturbance::{Disturbance, What},
    network::Link,
    virtual_worker::WorkerSpec,
};

/// Settings of a run of so many steps.
pub fn settings(run: RunSpec, steps: u64, seed: u64) -> Settings {
    Settings {
        run,
        steps,
        seed,
        start_with: 1,
        learning_rate: LearningRate { peak: 1e-2, floor: 1e-3, warmup_steps: 2, total_steps: steps },
        validate_every: 3,
        validation_batches: 1,
        snapshot_every: 2,
        heartbeat: Duration::from_secs(5),
        lease: Duration::from_secs(30),
        step_deadline: Duration::from_mins(5),
        max_workers: 16,
        texts_share: 0.2,
        corpus: "text".into(),
        tokenizer: "bytes".into(),
        train_tokens: 1000,
    }
}

/// A run of block mode, of blocks of so many local steps in rounds of `local_steps`.
pub fn block_setup(settings: Settings, local_steps: u32, deadline: DeadlinePolicy) -> BlockSetup {
    let run = &settings.run;
    let blocks = run.blocks.unwrap();
    let layers_per_block = run.model.layers / blocks.count;
    let noise = schedule(&blocks).unwrap();
    let own: usize = shapes::of_block(&run.model, layers_per_block, 0).iter().map(|shape| shape.len()).sum();
    let table = shapes::table(&run.model).len();
    let rounds = RoundSettings {
        local_steps,
        rounds: settings.steps.div_ceil(u64::from(local_steps)),
        deadline,
        fresh_moments: false,
        evaluator: Evaluator::Workers,
        draws: 2,
        ranges: (0..blocks.count).map(|block| noise.range(block)).collect(),
        layers_per_block,
        replica_bytes: 24 * (own + table) as u64,
        parameters: (table + blocks.count as usize * own) as u64,
        aggregator: "mean".into(),
    };
    // As the coordinator has them: ten times what AdamW can move a weight by in a round, four times the usual length.
    let largest = (10.0 * f64::from(local_steps) * settings.learning_rate.peak) as f32;
    let rules = Rules {
        aggregator: Aggregator::Mean,
        outer: OuterStep::Mean,
        largest,
        norm_limit: Some(4.0),
        suspicious: true,
    };
    BlockSetup { settings, rounds, rules }
}

/// Token ids made of numbers alone.
pub struct Mixed {
    /// N and T.
    pub shape: [u32; 2],
    pub vocabulary: u32,
    pub seed: u64,
}

impl Mixed {
    pub fn of(settings: &Settings) -> Self {
        let run = &settings.run;
        Self { shape: [run.sequences, run.context], vocabulary: run.model.vocabulary, seed: settings.seed }
    }

    fn ids(&self, key: u64, first: u64, count: u32) -> Vec<u32> {
        let id = |i| (mix(mix(self.seed) ^ key ^ i) % u64::from(self.vocabulary)) as u32;
        (first..first + u64::from(count)).map(id).collect()
    }
}

impl Windows for Mixed {
    fn pass(&mut self, to: &Address, half: Half, _: u32) -> Vec<u32> {
        let (step, pass) = match to.pass {
            Pass::Train { micro_batch } => (to.step, u64::from(micro_batch)),
            Pass::Validate { batch } => (0, 1000 + u64::from(batch)),
        };
        let [n, t] = self.shape;
        self.ids(mix(step) ^ mix(pass << 20), u64::from(half == Half::Targets), n * t)
    }

    fn round(&mut self, round: u64, slot: u32, steps: u32) -> Vec<u32> {
        let [n, t] = self.shape;
        self.ids(mix(round << 8) ^ mix(u64::from(slot) << 40), 0, steps * n * (t + 1))
    }

    fn evaluation(&mut self, batch: u32) -> Vec<u32> {
        let [n, t] = self.shape;
        self.ids(mix(u64::from(batch) << 50), 0, n * (t + 1))
    }
}

/// A text of few words, so that there is something to learn.
pub struct Words {
    pub shape: [u32; 2],
    pub seed: u64,
}

impl Words {
    pub fn of(settings: &Settings) -> Self {
        Self { shape: [settings.run.sequences, settings.run.context], seed: settings.seed }
    }

    fn windows(&self, key: u64, count: u32) -> Vec<u32> {
        let text = b"the quick brown fox jumps over the lazy dog. ";
        let window = |number: u32| {
            let first = mix(mix(self.seed) ^ key ^ u64::from(number)) % text.len() as u64;
            (0..=self.shape[1]).map(move |i| u32::from(text[(first as usize + i as usize) % text.len()]))
        };
        (0..count).flat_map(window).collect()
    }
}

impl Windows for Words {
    fn pass(&mut self, _: &Address, _: Half, _: u32) -> Vec<u32> {
        unreachable!("of pipeline mode")
    }

    fn round(&mut self, round: u64, slot: u32, steps: u32) -> Vec<u32> {
        self.windows(mix(round << 8) ^ mix(u64::from(slot) << 40), steps * self.shape[0])
    }

    fn evaluation(&mut self, batch: u32) -> Vec<u32> {
        self.windows(mix(u64::from(batch) << 50), self.shape[0])
    }
}

/// A worker that computes a layer in 0.3 s over a link of a few milliseconds: slow enough for several to share a model.
pub fn worker() -> WorkerSpec {
    let link = Link { latency: 2e-3, up: 1e6, down: 4e6 };
    WorkerSpec::of_layer_seconds("virtual", link, 0.3, 1)
}

/// So many disturbances at most, anywhere in a run that carries so many frames undisturbed, and the workers it begins
/// with. The same for a seed.
pub fn schedule_of(seed: u64, carried: u64, most: u64, kinds: u64) -> (u64, Vec<Disturbance>) {
    let mut random = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
    let mut draw = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let workers = 1 + draw(4);
    let disturbances = (0..draw(most))
        .map(|_| {
            let what = match draw(kinds) {
                0..=3 => What::Join,
                4..=6 => What::Kill,
                7..=8 => What::Cut,
                9 => What::HoldUp(1 + draw(20) as u32),
                10 => What::HoldUp(40 + draw(60) as u32),
                11 => What::Double,
                12 => What::Swap,
                13 => What::Garble,
                14 => What::Lose,
                15 | 16 => What::KillCoordinator(draw(8) as u32),
                17 => What::Silent(1 + draw(200) as u32),
                18 => What::Deaf(1 + draw(200) as u32),
                19 => What::DiesWhenReady,
                20 => What::Flap(1 + draw(5) as u32),
                21 => What::Lie,
                _ => What::FullDisk(1 + draw(30) as u32),
            };
            // More workers carry more frames.
            Disturbance { after: draw(carried * 4), what, whom: draw(1 << 20) }
        })
        .collect();
    (workers, disturbances)
}

/// Every kind of disturbance that [`schedule_of`] knows.
pub const ALL_KINDS: u64 = 23;

/// What a worker, its network and the disk may do while the other worker is well.
pub fn anything() -> Vec<What> {
    vec![
        What::Silent(1000),
        What::Deaf(1000),
        What::HoldUp(100),
        What::DiesWhenReady,
        What::Flap(5),
        What::Lie,
        What::Garble,
        What::Lose,
        What::Double,
        What::Swap,
        What::FullDisk(30),
    ]
}

/// Plays seeds on all processors.
pub fn on_all_processors(seeds: u64, play: impl Fn(u64) + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let play = &play;
            scope.spawn(move || (thread..seeds).step_by(threads as usize).for_each(play));
        }
    });
}
