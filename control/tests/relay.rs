//! The relay judges frames by their header alone, and knows whose turn it is.

mod common;

use control::pipeline::{Relay, Verdict};
use protocol::{
    message::{Activation, Address, Gradient, Pass, Relayed, TensorFrame},
    refusal::Refusal,
    tensor::{Encoding, TensorMeta},
    worker_id::WorkerId,
};

const A: WorkerId = WorkerId(1);
const B: WorkerId = WorkerId(2);
const C: WorkerId = WorkerId(3);

fn relay() -> Relay {
    let mut run = common::run_spec(3, 2, None);
    run.wire = Encoding::F16;
    let mut relay = Relay::new(4, vec![A, B, C], run, 1);
    relay.open_step(7);
    relay
}

fn forward(frame: TensorFrame) -> Relayed {
    Activation(frame).into()
}

fn back(frame: TensorFrame) -> Relayed {
    Gradient(frame).into()
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
    assert_eq!(relay.admit(A, &forward(frame(1))), Ok(Verdict::Forward(B)));
    assert_eq!(relay.admit(B, &forward(frame(2))), Ok(Verdict::Forward(C)));
    assert_eq!(relay.admit(C, &back(frame(1))), Ok(Verdict::Forward(B)));
    assert_eq!(relay.admit(B, &back(frame(0))), Ok(Verdict::Forward(A)));
}

#[test]
fn a_frame_passes_once() {
    let mut relay = relay();
    assert!(relay.admit(A, &forward(frame(1))).is_ok());
    assert!(refused(relay.admit(A, &forward(frame(1)))));
    let mut other = frame(1);
    other.to.pass = Pass::Train { micro_batch: 1 };
    assert!(relay.admit(A, &forward(other)).is_ok(), "the other micro-batch is its own");
}

#[test]
fn whoever_does_not_hold_the_hop_before_is_refused() {
    let mut relay = relay();
    assert!(refused(relay.admit(B, &forward(frame(1)))));
    assert!(refused(relay.admit(WorkerId(9), &forward(frame(1)))));
    assert!(refused(relay.admit(A, &forward(frame(0)))), "nothing goes into the first hop");
    assert!(refused(relay.admit(C, &back(frame(2)))), "no gradient goes into the last hop");
    assert!(refused(relay.admit(A, &forward(frame(u32::MAX)))));
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
        assert!(refused(relay().admit(A, &forward(bad))), "change {i}");
    }
    let mut validation = frame(1);
    validation.to.pass = Pass::Validate { batch: 0 };
    assert!(relay().admit(A, &forward(validation.clone())).is_ok());
    validation.to.hop = 0;
    assert!(refused(relay().admit(B, &back(validation))), "validation does not go back");
}

#[test]
fn frames_of_an_ended_plan_or_step_are_passed_over_in_silence() {
    let mut relay = relay();
    let mut late = frame(1);
    late.to.epoch = 3;
    assert_eq!(relay.admit(A, &forward(late.clone())), Ok(Verdict::Stale));
    late.to = Address { epoch: 4, step: 6, ..late.to };
    assert_eq!(relay.admit(A, &forward(late)), Ok(Verdict::Stale));
    let mut closed = Relay::closed(4);
    assert_eq!(closed.admit(A, &forward(frame(1))), Ok(Verdict::Stale));
}

#[test]
fn a_position_beyond_all_numbers_is_refused_and_not_looked_up() {
    for hop in [3, 1024, u32::MAX - 1, u32::MAX] {
        for from in [A, B, C] {
            assert!(refused(relay().admit(from, &back(frame(hop)))), "{hop}");
            assert!(refused(relay().admit(from, &forward(frame(hop)))), "{hop}");
        }
    }
}

#[test]
fn whoever_has_what_it_needs_and_passes_nothing_on_owes_the_next_frame() {
    let mut relay = relay();
    let of = |micro_batch, hop| {
        let mut frame = frame(hop);
        frame.to.pass = Pass::Train { micro_batch };
        frame
    };
    let mut owing = vec![relay.owing()];
    for (from, message) in [
        (A, forward(of(0, 1))),
        (A, forward(of(1, 1))),
        (B, forward(of(0, 2))),
        (C, back(of(0, 1))),
        (B, back(of(0, 0))),
        (B, forward(of(1, 2))),
        (C, back(of(1, 1))),
        (B, back(of(1, 0))),
    ] {
        assert!(relay.admit(from, &message).is_ok());
        owing.push(relay.owing());
    }
    let expected = [A, B, B, C, B, B, C, B].map(Some);
    assert_eq!(owing[..8], expected);
    assert_eq!(owing[8], None, "all has been passed on: who owes a report is not known here");
    assert_eq!(Relay::closed(4).owing(), None);
}

#[test]
fn in_a_step_of_validation_only_the_loss_is_owed_by_the_last() {
    let mut relay = relay();
    relay.steps = 7;
    let mut validation = frame(1);
    validation.to.pass = Pass::Validate { batch: 0 };
    assert_eq!(relay.owing(), Some(A));
    assert!(relay.admit(A, &forward(validation.clone())).is_ok());
    assert_eq!(relay.owing(), Some(B));
    validation.to.hop = 2;
    assert!(relay.admit(B, &forward(validation)).is_ok());
    assert_eq!(relay.owing(), Some(C));
}
