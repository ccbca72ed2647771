//! Frames of the session, as the coordinator and as a worker read them, and the tensors in them.

use protocol::{
    frame::{self, MAX_DECODE_MEMORY},
    message::{FrameHeader, FromWorker, Payload, Refuse, ToWorker},
    refusal::Refusal,
    tensor::{Encoding, TensorMeta, decode_floats, decode_tokens, encode_floats, encode_tokens},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{finite::assert_finite, memory};

/// Reads `bytes` as a frame, both ways.
///
/// # Panics
/// When something is not as it must be.
pub fn check(bytes: &[u8]) -> bool {
    // Both, whatever the first one says.
    one_way::<FromWorker>(bytes) | one_way::<ToWorker>(bytes)
}

fn one_way<M: FrameHeader + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> bool {
    let decoded = memory::within(MAX_DECODE_MEMORY as u64, || frame::decode::<M>(bytes));
    let frame = match decoded {
        Ok(frame) => frame,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            can_be_sent(error.into());
            return false;
        }
    };
    assert!(bytes.ends_with(frame.payload), "the payload is the end of the frame, as it came");
    assert_finite(&frame.message);
    // Whoever decodes can send it on, and the next one reads the same.
    let again = frame::encode(&frame.message, frame.payload).expect("what is decoded can be encoded");
    assert!(again.len() <= bytes.len(), "there is no shorter way to write a frame than ours");
    assert_eq!(frame::decode::<M>(&again).as_ref(), Ok(&frame));
    if let Payload::Tensor(meta) = frame.message.payload() {
        tensor(meta, frame.payload);
    }
    true
}

/// A refusal reaches the worker it is for.
fn can_be_sent(refusal: Refusal) {
    assert!(!refusal.to_string().is_empty());
    let message = ToWorker::Down(Refuse(refusal).into());
    let bytes = frame::encode(&message, &[]).expect("a refusal keeps the protocol's rules");
    assert_eq!(frame::decode::<ToWorker>(&bytes).map(|frame| frame.message), Ok(message));
}

/// The tensor as it is described, and with the checksum that a hostile sender would give it.
fn tensor(meta: &TensorMeta, payload: &[u8]) {
    let right = TensorMeta { checksum: xxh3_64(payload), ..meta.clone() };
    if *meta != right {
        assert!(decode_floats(meta, payload).is_err() && decode_tokens(meta, payload).is_err());
    }
    // Codes, values, and a list of each while they are collected.
    let limit = 16 * payload.len() as u64 + 4096;
    let tokens = memory::within(limit, || decode_tokens(&right, payload));
    assert_eq!(tokens.is_ok(), right.encoding == Encoding::U32, "{tokens:?}");
    if let Ok(tokens) = tokens {
        assert_eq!(encode_tokens(&tokens, &right.shape), Ok((right.clone(), payload.to_vec())));
    }
    match memory::within(limit, || decode_floats(&right, payload)) {
        Ok(values) => {
            assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
            assert_eq!(Some(values.len() as u64), TensorMeta::elements(&right.shape));
            let again = encode_floats(&values, &right.shape, right.encoding);
            // int8 is encoded anew, with another scale where no value was the largest possible.
            if right.encoding == Encoding::Int8 {
                assert!(again.is_ok(), "{again:?}");
            } else {
                assert_eq!(again, Ok((right, payload.to_vec())));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
