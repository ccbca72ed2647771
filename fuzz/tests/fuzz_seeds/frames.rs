//! Frames: the shortest of some of each message there is.

use std::collections::BTreeMap;

use proptest::{prelude::*, strategy::ValueTree};
use protocol::{
    frame,
    message::{FrameHeader, Payload},
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
    shortest.into_iter().collect()
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
