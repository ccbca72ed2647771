//! Files of weights: safetensors, as snapshots and checkpoints have them, and a checkpoint's `config.json`.

use engine::{
    Device,
    checkpoint::{self, Checkpoint, state_hash},
    parameters::{ParameterSet, Quantity},
};
use futures::executor::block_on;
use protocol::spec::{Hop, ModelSpec, Moments};

use crate::memory;

/// The model that the files are for: as small as can be, for the sake of small inputs.
pub const MODEL: ModelSpec =
    ModelSpec { vocabulary: 3, positions: 2, width: 2, heads: 1, layers: 1, tie_embeddings: false };

/// All of the model.
pub fn whole() -> [Hop; 1] {
    [Hop { index: 0, part: MODEL.whole() }]
}

/// Reads `bytes` as a file of weights and, where they are text, as a `config.json`.
///
/// # Panics
/// When something is not as it must be.
pub fn check(bytes: &[u8]) -> bool {
    if let Err(error) = state_hash(&[bytes]) {
        assert!(!error.to_string().is_empty());
    }
    whole_checkpoint(bytes);
    weights(bytes) | std::str::from_utf8(bytes).is_ok_and(config)
}

fn weights(bytes: &[u8]) -> bool {
    // A list of dimensions takes up to sixteen times the bytes it is written in while it grows, the map of tensors a few
    // times theirs; and the model's own numbers.
    let limit = 64 * bytes.len() as u64 + (64 << 10);
    let set = match memory::within(limit, || ParameterSet::import(&MODEL, &whole(), &[bytes], &Device::Cpu)) {
        Ok(set) => set,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    assert!(set.steps_done() <= 1 << 53, "{} steps", set.steps_done());
    for index in 0..set.shapes().len() {
        let read = |quantity| block_on(set.read(index, quantity)).expect("the processor can be read");
        for quantity in [Quantity::Value, Quantity::FirstMoment, Quantity::SecondMoment] {
            let values = read(quantity);
            assert_eq!(values.len(), set.shapes()[index].len());
            assert!(values.iter().all(|value| value.is_finite()), "{quantity:?}: {values:?}");
        }
        let second = read(Quantity::SecondMoment);
        assert!(second.iter().all(|value| *value >= 0.0), "AdamW takes its root: {second:?}");
    }
    for moments in [Moments::Full, Moments::F16, Moments::None] {
        let file = block_on(set.export(moments)).expect("what is imported can be exported");
        let again =
            ParameterSet::import(&MODEL, &whole(), &[&file], &Device::Cpu).expect("and imported again");
        assert_eq!(again.steps_done(), set.steps_done());
        if moments == Moments::Full {
            assert_eq!(block_on(again.export(moments)), Ok(file), "equal parameters give equal bytes");
        }
    }
    true
}

fn whole_checkpoint(bytes: &[u8]) {
    match Checkpoint::from_snapshot(&MODEL, &[bytes]) {
        Ok(checkpoint) => {
            let model = checkpoint.load(&Device::Cpu).map(|(model, _)| model);
            assert_eq!(model, Ok(MODEL), "a checkpoint that was written can be loaded");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn config(text: &str) -> bool {
    match memory::within(64 * text.len() as u64 + (64 << 10), || checkpoint::model(text)) {
        Ok(model) => {
            assert!(model.heads > 0 && model.width % model.heads == 0, "heads divide the width: {model:?}");
            assert_eq!(checkpoint::model(&checkpoint::config(&model)), Ok(model));
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}
