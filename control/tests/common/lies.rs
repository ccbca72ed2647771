//! Messages of a worker that lies in any field.

use control::Event;
use proptest::{collection::vec, prelude::*, sample::select};
use protocol::{
    blob::{BlobHash, BlobRef},
    checked::Checked,
    evaluation::Scores,
    message::{
        DeltaReady, DeviceStatus, EvaluationReport, Fault, FaultKind, Heartbeat, Leaving, LinkSpeed,
        PassSeconds, Pressure, Probe, Profile, Ready, SnapshotReady, StepReport, Timings, Traversal, Up,
        ValidationReport,
    },
    refusal::Refusal,
    spec::Backend,
    worker_id::WorkerId,
};

use super::{hello, pipeline::decoded};

/// A whole number, near what the run counts or far from it.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// So much more than what the run is at, or less.
    Near(i64),
    /// This number.
    Of(u64),
}

/// What the run is at, so that some lies are nearly true.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// Epoch or round.
    pub during: u64,
    /// Steps done.
    pub step: u64,
}

/// Numbers for a message of any kind.
#[derive(Debug, Clone)]
pub struct Lie {
    kind: u8,
    during: Number,
    step: Number,
    small: u32,
    floats: Vec<f64>,
    length: usize,
    field: usize,
}

impl Number {
    fn at(self, now: u64) -> u64 {
        match self {
            Number::Near(off) => now.saturating_add_signed(off),
            Number::Of(number) => number,
        }
    }
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        3 => (-2..=2i64).prop_map(Number::Near),
        1 => (0..12u64).prop_map(Number::Of),
        1 => select(vec![(1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX]).prop_map(Number::Of),
    ]
}

fn float() -> impl Strategy<Value = f64> {
    let edges = vec![
        0.0,
        -0.0,
        5e-324,
        1e-300,
        1e-9,
        1e-3,
        1.0,
        3.0,
        1e3,
        1e7,
        1e9,
        1e12,
        f64::MAX,
        -1e-3,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    prop_oneof![3 => select(edges), 1 => 0.0..10.0]
}

/// Any lie.
pub fn lie() -> impl Strategy<Value = Lie> {
    let small = prop_oneof![4 => 0..8u32, 1 => select(vec![1023, 1024, 1 << 20, u32::MAX])];
    let length = prop_oneof![4 => 0..5usize, 1 => select(vec![513, 1024, 4097])];
    (any::<u8>(), number(), number(), small, vec(float(), 12), length, any::<usize>()).prop_map(
        |(kind, during, step, small, floats, length, field)| Lie {
            kind,
            during,
            step,
            small,
            floats,
            length,
            field,
        },
    )
}

impl Lie {
    fn list<T: Copy>(&self, one: T) -> Vec<T> {
        vec![one; self.length]
    }

    fn timings(&self) -> Timings {
        let [forward, backward, local_steps, wait, send, receive, optimizer] =
            std::array::from_fn(|index| self.floats[index]);
        Timings { forward, backward, local_steps, wait, send, receive, optimizer }
    }

    fn status(&self) -> DeviceStatus {
        DeviceStatus { memory_bytes: u64::from(self.small) << 32, pressure: Some(Pressure::Critical) }
    }

    fn blob(&self) -> BlobRef {
        BlobRef { hash: BlobHash([self.small as u8; 32]), bytes: u64::from(self.small) << 20 }
    }

    fn scores(&self) -> Scores {
        Scores {
            one_draw: self.floats[0],
            draws: self.small,
            many_draws: self.floats[1],
            from_zero: self.floats[2],
            chain: self.list(self.floats[3]),
            alone: self.list(self.floats[4]),
            local: self.list(self.floats[5]),
            scrambled: self.list(self.floats[6]),
        }
    }

    fn fault_kind(&self) -> FaultKind {
        [FaultKind::BadTensor, FaultKind::NotFinite, FaultKind::Device, FaultKind::Weights][self.field % 4]
    }

    /// A message of any kind with any numbers.
    pub fn message(&self, at: At) -> Up {
        let (during, step) = (self.during.at(at.during), self.step.at(at.step));
        let pass =
            |first: usize| PassSeconds { forward: self.floats[first], backward: self.floats[first + 1] };
        match self.kind % 14 {
            0 => Up::Hello(hello()),
            1 => Up::Probe(Probe { number: self.small, padding: 0, answer: 0 }),
            2 => Up::Profile(Profile {
                backend: Backend::WebGpu,
                device: "x".repeat(self.length),
                threads: self.small,
                memory_bytes: step,
                layer: pass(0),
                embedding: pass(2),
                head_seconds: self.floats[4],
                link: Some(LinkSpeed {
                    round_trip_seconds: self.floats[5],
                    up: self.floats[6],
                    down: self.floats[7],
                }),
            }),
            3 => Up::Heartbeat(Heartbeat {}),
            4 => Up::Leaving(Leaving { reason: "x".repeat(self.length) }),
            5 | 6 => Up::Fault(Fault { during, kind: self.fault_kind(), detail: "x".repeat(self.length) }),
            7 => Up::Ready(Ready { epoch: during }),
            8 => Up::StepReport(StepReport {
                epoch: during,
                step,
                squared_norm: self.floats[7],
                losses: self.list(self.floats[8] as f32),
                timings: self.timings(),
                status: self.status(),
            }),
            9 => Up::ValidationReport(ValidationReport {
                epoch: during,
                step,
                batch: self.small,
                loss: self.floats[0] as f32,
            }),
            12 => Up::Decoded(decoded(
                Traversal { epoch: during, number: step, hop: self.small },
                self.floats[1],
            )),
            10 => Up::SnapshotReady(SnapshotReady { epoch: during, steps_done: step, blob: self.blob() }),
            11 => Up::DeltaReady(DeltaReady {
                round: during,
                block: self.small,
                blob: self.blob(),
                loss: self.floats[8] as f32,
                cross_entropy: self.floats[9] as f32,
                timings: self.timings(),
                status: self.status(),
            }),
            _ => Up::EvaluationReport(EvaluationReport {
                round: during,
                batch: self.small,
                scores: self.scores(),
            }),
        }
    }

    /// A true message with a lie in one of its fields.
    pub fn twist(&self, mut message: Up, at: At) -> Up {
        let (during, step) = (self.during.at(at.during), self.step.at(at.step));
        let float = self.floats[0];
        match &mut message {
            Up::Profile(profile) => match self.field % 7 {
                0 => profile.layer.forward = float,
                1 => profile.layer.backward = float,
                2 => profile.embedding.forward = float,
                3 => profile.head_seconds = float,
                4 => profile.memory_bytes = step,
                5 => profile.threads = self.small,
                _ => {
                    let (up, down) = (float, self.floats[1]);
                    profile.link = Some(LinkSpeed { round_trip_seconds: self.floats[2], up, down });
                }
            },
            Up::Ready(ready) => ready.epoch = during,
            Up::StepReport(report) => match self.field % 6 {
                0 => report.epoch = during,
                1 => report.step = step,
                2 => report.squared_norm = float,
                3 => report.losses = self.list(float as f32),
                4 => report.timings = self.timings(),
                _ => report.status = self.status(),
            },
            Up::ValidationReport(report) => match self.field % 4 {
                0 => report.epoch = during,
                1 => report.step = step,
                2 => report.batch = self.small,
                _ => report.loss = float as f32,
            },
            Up::SnapshotReady(part) => match self.field % 3 {
                0 => part.epoch = during,
                1 => part.steps_done = step,
                _ => part.blob = self.blob(),
            },
            Up::DeltaReady(ready) => match self.field % 6 {
                0 => ready.round = during,
                1 => ready.block = self.small,
                2 => ready.blob = self.blob(),
                3 => ready.loss = float as f32,
                4 => ready.cross_entropy = float as f32,
                _ => ready.timings = self.timings(),
            },
            Up::EvaluationReport(report) => match self.field % 3 {
                0 => report.round = during,
                1 => report.batch = self.small,
                _ => report.scores = self.scores(),
            },
            Up::Decoded(decoded) => match self.field % 4 {
                0 => decoded.of.epoch = during,
                1 => decoded.of.number = step,
                2 => decoded.of.hop = self.small,
                _ => decoded.seconds = float,
            },
            Up::Hello(_) | Up::Probe(_) | Up::Heartbeat(_) | Up::Leaving(_) | Up::Fault(_) => {}
        }
        message
    }
}

/// What comes of a message before the run sees it: one that breaks a field's rule is turned away with its sender, and
/// the run hears only that.
pub fn events(worker: WorkerId, message: Up) -> Vec<Event> {
    match message.check() {
        Ok(()) => vec![Event::Said { worker, message }],
        Err(error) => {
            let refusal = Refusal::Malformed { detail: error.to_string() };
            let why = refusal.to_string();
            vec![Event::Refused { worker: Some(worker), refusal }, Event::Gone { worker, why }]
        }
    }
}
