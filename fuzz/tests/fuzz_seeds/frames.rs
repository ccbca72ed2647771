//! Frames: the shortest of some of each message there is, and tensors of the largest numbers.

use std::collections::BTreeMap;

use proptest::{prelude::*, strategy::ValueTree};
use protocol::{
    frame,
    message::{Activation, Address, FrameHeader, FromWorker, Pass, Payload, TensorFrame},
    tensor::{Encoding, encode_floats},
};

use crate::{
    Seeds,
    messages::{Sent, from_worker, to_worker},
    runner,
};

/// Drawn for each way. So many that every message is among them.
const DRAWN: usize = 4000;

pub(crate) fn seeds() -> Seeds {
    let mut shortest = BTreeMap::new();
    add(&mut shortest, "up", from_worker());
    add(&mut shortest, "down", to_worker());
    shortest.into_iter().chain(largest()).collect()
}

/// Activations of the largest numbers of each encoding, and what no sender of ours makes: the same with infinity as their
/// first number or scale.
fn largest() -> impl Iterator<Item = (String, Vec<u8>)> {
    [
        (Encoding::F32, f32::MAX, f32::INFINITY.to_le_bytes().to_vec()),
        (Encoding::F16, 65_504.0, vec![0, 0x7c]),
        (Encoding::Int8, 3.4e38, f32::INFINITY.to_le_bytes().to_vec()),
    ]
    .into_iter()
    .flat_map(|(encoding, most, infinity)| {
        let (tensor, payload) = encode_floats(&[most, -1.0, -most], &[1, 3], encoding).unwrap();
        let to = Address { epoch: 1, step: 2, pass: Pass::Train { micro_batch: 3 }, hop: 4 };
        let message = FromWorker::Relayed(Activation(TensorFrame { to, tensor }).into());
        let hostile = [&infinity, &payload[infinity.len()..]].concat();
        [("largest", payload), ("infinite", hostile)].map(|(kind, payload)| {
            (format!("real-up-Activation-{encoding}-{kind}"), frame::encode(&message, &payload).unwrap())
        })
    })
}

fn add<M: FrameHeader + std::fmt::Debug>(
    shortest: &mut BTreeMap<String, Vec<u8>>,
    way: &str,
    messages: impl Strategy<Value = Sent<M>>,
) {
    let mut runner = runner();
    for _ in 0..DRAWN {
        let Sent { message, payload } = messages.new_tree(&mut runner).unwrap().current();
        // A payload without a number in it would teach little.
        if matches!(message.payload(), Payload::Tensor(_)) && payload.len() < 8 {
            continue;
        }
        let bytes = frame::encode(&message, &payload).unwrap();
        let kept = shortest.entry(format!("real-{way}-{}", message.name())).or_insert_with(|| bytes.clone());
        if bytes.len() < kept.len() {
            *kept = bytes;
        }
    }
}
