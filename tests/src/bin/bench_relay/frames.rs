//! The frames that are relayed, and the runs in which they are.

use std::sync::Arc;

use anyhow::Result;
use protocol::{
    frame,
    message::{Activation, Address, FromWorker, Gradient, Pass, Relayed, TensorFrame, ToWorker},
    tensor::{Encoding, TensorMeta, encode_floats},
};

/// A run of two stages, by what passes between them.
pub struct Shape {
    pub name: &'static str,
    sequences: u32,
    context: u32,
    width: u32,
    /// Many, so that a round takes long beside what its beginning and end take.
    pub micro_batches: u32,
    /// Frames one at a time whose way is timed, in a round.
    pub timed: u32,
    /// More than the queues on the way hold, so that a slow receiver shows.
    pub shows_back_pressure: bool,
}

pub const SHAPES: [Shape; 2] = [
    Shape {
        name: "16 KiB",
        sequences: 4,
        context: 64,
        width: 16,
        micro_batches: 2048,
        timed: 300,
        shows_back_pressure: false,
    },
    Shape {
        name: "1 MiB",
        sequences: 4,
        context: 256,
        width: 256,
        micro_batches: 128,
        timed: 50,
        shows_back_pressure: true,
    },
];

impl Shape {
    /// Goes on for longer than anybody measures, without snapshots, whose blobs the peers do not have.
    pub fn toml(&self) -> String {
        let Self { sequences, context, width, micro_batches, .. } = self;
        format!(
            r#"
name = "bench-relay"
model = {{ layers = 2, heads = 2, width = {width}, context = {context} }}
pipeline = {{ stages = 2, start_with = 2, wire = "f32" }}
snapshots = {{ every = 1000000000 }}
session = {{ heartbeat_seconds = 1800, lease_seconds = 3600 }}

[training]
steps = 1000000000
micro_batches = {micro_batches}
sequences = {sequences}
context = {context}
validate_every = 0
"#
        )
    }

    fn shape(&self) -> [u32; 3] {
        [self.sequences, self.context, self.width]
    }

    /// One payload for all of its frames.
    pub fn payload(&self) -> Result<Payload> {
        let shape = self.shape();
        let values: Vec<f32> = (0..shape.iter().product()).map(|i: u32| (i % 1013) as f32 / 1013.0).collect();
        let (meta, bytes) = encode_floats(&values, &shape, Encoding::F32)?;
        Ok(Payload { meta, bytes: bytes.into() })
    }
}

#[derive(Clone)]
pub struct Payload {
    meta: TensorMeta,
    bytes: Arc<[u8]>,
}

impl Payload {
    /// In bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

#[derive(Clone, Copy)]
pub enum Direction {
    /// Activations to hop 1.
    Forward,
    /// Gradients to hop 0.
    Back,
}

/// All that may pass in one step.
#[derive(Clone)]
pub struct Step {
    pub epoch: u64,
    pub step: u64,
    pub micro_batches: u32,
    pub payload: Payload,
}

impl Step {
    fn address(&self, micro_batch: u32, direction: Direction) -> Address {
        Address {
            epoch: self.epoch,
            step: self.step,
            pass: Pass::Train { micro_batch },
            hop: match direction {
                Direction::Forward => 1,
                Direction::Back => 0,
            },
        }
    }

    pub fn frame(&self, micro_batch: u32, direction: Direction) -> Result<Vec<u8>> {
        let tensor =
            TensorFrame { to: self.address(micro_batch, direction), tensor: self.payload.meta.clone() };
        let message = match direction {
            Direction::Forward => Relayed::Activation(Activation(tensor)),
            Direction::Back => Relayed::Gradient(Gradient(tensor)),
        };
        Ok(frame::encode(&FromWorker::Relayed(message), &self.payload.bytes)?)
    }

    /// Whether this is that frame, as far as its header says.
    pub fn is(&self, message: &ToWorker, micro_batch: u32, direction: Direction) -> bool {
        let tensor = match (message, direction) {
            (ToWorker::Relayed(Relayed::Activation(Activation(tensor))), Direction::Forward) => tensor,
            (ToWorker::Relayed(Relayed::Gradient(Gradient(tensor))), Direction::Back) => tensor,
            _ => return false,
        };
        tensor.to == self.address(micro_batch, direction)
    }
}
