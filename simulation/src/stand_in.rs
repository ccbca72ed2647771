//! A tiny model in place of a run's own, so that a prediction trains nothing worth mention, while the bytes that count
//! are those of the real frames and files.

use std::collections::HashMap;

use control::Settings;
use engine::{
    aggregation::server::{Files, Rules, Server, ServerError},
    denoiser::{BlockError, layers_per_block, shapes},
};
use protocol::{
    blob::{BlobHash, BlobRef},
    delta::{DeltaEncoding, DeltaHeader, encoded_bytes},
    frame::{self, Frame},
    message::{Down, FromWorker, Header, Payload, ToWorker, Up},
    spec::{ModelSpec, RunSpec},
    tensor::TensorMeta,
};

/// Bytes of a delta's file before its header: the format's name, and the header's length.
const DELTA_PREFIX: u64 = 8;

/// What stands for what.
#[derive(Debug)]
pub(crate) struct StandIn {
    run: RunSpec,
    /// Bytes of the real table and blocks, ...
    table: u64,
    blocks: Vec<u64>,
    /// ... of each file that is published in their place, ...
    files: HashMap<BlobHash, u64>,
    /// ... and of a real delta.
    delta: u64,
}

impl StandIn {
    /// Takes the settings of a run, and puts those of the tiny one in their place.
    ///
    /// # Errors
    /// A run that is not in block mode.
    pub(crate) fn replace(settings: &mut Settings, rules: Rules) -> Result<Self, ServerError> {
        let run = settings.run.clone();
        let blocks = run.blocks.ok_or(BlockError::NotBlockMode)?;
        let layers = run.model.layers;
        let each = layers_per_block(&run.model, &blocks)
            .ok_or(BlockError::Layers { layers, count: blocks.count })?;
        let files = Server::draw(&run, settings.seed, rules)?.files()?;
        let lengths: Vec<u32> =
            shapes::of_replica(&run.model, each, 0).iter().map(|shape| shape.len() as u32).collect();
        let length = |file: &Vec<u8>| file.len() as u64;
        let stand_in = Self {
            table: length(&files.table),
            blocks: files.blocks.iter().map(length).collect(),
            files: HashMap::new(),
            delta: delta_bytes(blocks.delta, lengths),
            run,
        };
        settings.run.model = ModelSpec {
            vocabulary: 2,
            positions: 1,
            width: 2,
            heads: 1,
            layers: blocks.count,
            tie_embeddings: false,
        };
        (settings.run.sequences, settings.run.context) = (1, 1);
        // Rates have one length in a frame, whatever they are; what is learned must only stay finite.
        settings.learning_rate.peak = 1e-6;
        settings.learning_rate.floor = 1e-6;
        Ok(stand_in)
    }

    /// Bytes of what goes down and up in a round of so many local steps, but for a few of the frames' headers.
    pub(crate) fn bytes_of_a_round(&self, steps: u64) -> [u64; 2] {
        let windows = 4 * steps * u64::from(self.run.sequences) * u64::from(self.run.context + 1);
        let block = self.blocks.first().copied().unwrap_or(0);
        [block + self.table + windows, self.delta]
    }

    /// Notes the files that are published in place of the real ones.
    pub(crate) fn published(&mut self, files: &Files) {
        self.files.insert(BlobHash::of(&files.table), self.table);
        for (file, bytes) in files.blocks.iter().zip(&self.blocks) {
            self.files.insert(BlobHash::of(file), *bytes);
        }
    }

    /// Bytes of the real file; of one that is not published, a delta's.
    pub(crate) fn file(&self, hash: BlobHash) -> u64 {
        self.files.get(&hash).copied().unwrap_or(self.delta)
    }

    /// Bytes of the real frame to the coordinator.
    pub(crate) fn up(&self, bytes: &[u8]) -> u64 {
        let Ok(Frame { mut message, payload }) = frame::decode::<FromWorker>(bytes) else {
            return bytes.len() as u64;
        };
        let before = header_bytes(&message);
        if let FromWorker::Up(Up::DeltaReady(ready)) = &mut message {
            ready.blob.bytes = self.delta;
        }
        self.resized(bytes, before, &message, payload)
    }

    /// Bytes of the real frame to a worker.
    pub(crate) fn down(&self, bytes: &[u8]) -> u64 {
        let Ok(Frame { mut message, payload }) = frame::decode::<ToWorker>(bytes) else {
            return bytes.len() as u64;
        };
        let before = header_bytes(&message);
        let real = |blob: &mut BlobRef| blob.bytes = self.file(blob.hash);
        let windows = |tensor: &mut TensorMeta| {
            let (sequences, context) = (self.run.sequences, self.run.context);
            if let [.., n, t] = tensor.shape.as_mut_slice() {
                (*n, *t) = (sequences, context + 1);
            }
            tensor.bytes = TensorMeta::expected_bytes(tensor.encoding, &tensor.shape).unwrap_or(tensor.bytes);
        };
        match &mut message {
            ToWorker::Down(Down::Round(round)) => {
                real(&mut round.task.base);
                real(&mut round.task.table);
                windows(&mut round.windows);
            }
            ToWorker::Down(Down::Evaluate(evaluate)) => {
                evaluate.task.blocks.iter_mut().for_each(real);
                real(&mut evaluate.task.table);
                windows(&mut evaluate.windows);
            }
            _ => {}
        }
        self.resized(bytes, before, &message, payload)
    }

    fn resized(&self, bytes: &[u8], header: u64, message: &impl Header, payload: &[u8]) -> u64 {
        let real_payload = match message.payload() {
            Payload::Tensor(tensor) => tensor.bytes,
            Payload::None | Payload::Padding(_) => payload.len() as u64,
        };
        let around = bytes.len() as u64 - payload.len() as u64 - header;
        around + header_bytes(message) + real_payload
    }
}

fn header_bytes(message: &impl Header) -> u64 {
    postcard::to_stdvec(message).map_or(0, |bytes| bytes.len() as u64)
}

/// Bytes of the file of a delta of tensors of so many numbers each.
pub(crate) fn delta_bytes(encoding: DeltaEncoding, lengths: Vec<u32>) -> u64 {
    let payload = encoded_bytes(encoding, &lengths);
    let none = BlobHash([0; 32]);
    let header = DeltaHeader { round: 0, block: 0, base: none, table: none, encoding, lengths };
    DELTA_PREFIX + postcard::to_stdvec(&header).map_or(0, |bytes| bytes.len() as u64) + payload
}
