//! The relay judges frames by their header alone.

use coordinator::run::{
    event::WorkerId,
    relay::{Relay, Verdict},
};
use protocol::{
    message::{Address, Message, Pass, TensorFrame},
    refusal::Refusal,
    spec::{ModelSpec, Moments, OptimizerSpec, RunSpec},
    tensor::{Encoding, TensorMeta},
};

const A: WorkerId = WorkerId(1);
const B: WorkerId = WorkerId(2);
const C: WorkerId = WorkerId(3);

fn relay() -> Relay {
    let run = RunSpec {
        name: "r".into(),
        model: ModelSpec {
            vocabulary: 16,
            positions: 8,
            width: 4,
            heads: 2,
            layers: 3,
            tie_embeddings: false,
        },
        optimizer: OptimizerSpec {
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip_norm: 1.0,
        },
        sequences: 2,
        context: 8,
        micro_batches: 2,
        recompute: false,
        wire: Encoding::F16,
        moments: Moments::Full,
        blocks: None,
    };
    let mut relay = Relay::new(4, vec![A, B, C], run, 1);
    relay.open_step(7);
    relay
}

fn frame(hop: u32) -> TensorFrame {
    TensorFrame {
        to: Address { epoch: 4, step: 7, pass: Pass::Train { micro_batch: 0 }, hop },
        tensor: TensorMeta { encoding: Encoding::F16, shape: vec![2, 8, 4], bytes: 128, checksum: 0 },
    }
}

fn refused(result: Result<Verdict, Refusal>) -> bool {
    matches!(result, Err(Refusal::NotInPlan { .. }))
}

#[test]
fn activations_go_to_the_next_hop_and_gradients_back() {
    let mut relay = relay();
    assert_eq!(relay.admit(A, &Message::Activation(frame(1))), Ok(Verdict::Forward(B)));
    assert_eq!(relay.admit(B, &Message::Activation(frame(2))), Ok(Verdict::Forward(C)));
    assert_eq!(relay.admit(C, &Message::Gradient(frame(1))), Ok(Verdict::Forward(B)));
    assert_eq!(relay.admit(B, &Message::Gradient(frame(0))), Ok(Verdict::Forward(A)));
}

#[test]
fn a_frame_passes_once() {
    let mut relay = relay();
    assert!(relay.admit(A, &Message::Activation(frame(1))).is_ok());
    assert!(refused(relay.admit(A, &Message::Activation(frame(1)))));
    let mut other = frame(1);
    other.to.pass = Pass::Train { micro_batch: 1 };
    assert!(relay.admit(A, &Message::Activation(other)).is_ok(), "the other micro-batch is its own");
}

#[test]
fn whoever_does_not_hold_the_hop_before_is_refused() {
    let mut relay = relay();
    assert!(refused(relay.admit(B, &Message::Activation(frame(1)))));
    assert!(refused(relay.admit(WorkerId(9), &Message::Activation(frame(1)))));
    assert!(refused(relay.admit(A, &Message::Activation(frame(0)))), "nothing goes into the first hop");
    assert!(refused(relay.admit(C, &Message::Gradient(frame(2)))), "no gradient goes into the last hop");
    assert!(refused(relay.admit(A, &Message::Activation(frame(u32::MAX)))));
}

#[test]
fn another_shape_encoding_or_pass_is_refused() {
    type Change = fn(&mut TensorFrame);
    let changes: [Change; 5] = [
        |f| f.tensor.shape = vec![2, 8, 5],
        |f| f.tensor.encoding = Encoding::F32,
        |f| f.to.pass = Pass::Train { micro_batch: 2 },
        |f| f.to.step = 8,
        |f| f.to.epoch = 5,
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut bad = frame(1);
        change(&mut bad);
        assert!(refused(relay().admit(A, &Message::Activation(bad))), "change {i}");
    }
    let mut validation = frame(1);
    validation.to.pass = Pass::Validate { batch: 0 };
    assert!(relay().admit(A, &Message::Activation(validation.clone())).is_ok());
    validation.to.hop = 0;
    assert!(refused(relay().admit(B, &Message::Gradient(validation))), "validation does not go back");
}

#[test]
fn frames_of_an_ended_plan_or_step_are_passed_over_in_silence() {
    let mut relay = relay();
    let mut late = frame(1);
    late.to.epoch = 3;
    assert_eq!(relay.admit(A, &Message::Activation(late.clone())), Ok(Verdict::Stale));
    late.to = Address { epoch: 4, step: 6, ..late.to };
    assert_eq!(relay.admit(A, &Message::Activation(late)), Ok(Verdict::Stale));
    let mut closed = Relay::closed(4);
    assert_eq!(closed.admit(A, &Message::Activation(frame(1))), Ok(Verdict::Stale));
}
