//! Frames at their limits, and the words of refusals.

#![allow(clippy::unwrap_used)]

use protocol::{
    VERSION,
    blob::{BlobHash, BlobRef},
    frame::{self, Frame, FrameError, MAX_FRAME, MAX_HEADER, MAX_PAYLOAD},
    limits::{self, LimitError},
    message::*,
    refusal::Refusal,
    spec::*,
    tensor::{Encoding, MAX_ELEMENTS, MetaError, TensorMeta, encode_floats, encode_tokens},
};

const TO: Address = Address { epoch: 3, step: 7, pass: Pass::Train { micro_batch: 2 }, hop: 1 };

fn activation(tensor: TensorMeta) -> Message {
    Message::Activation(TensorFrame { to: TO, tensor })
}

/// A frame as a sender without checks would write it.
fn unchecked(message: &Message, payload: &[u8]) -> Vec<u8> {
    let header = postcard::to_stdvec(message).unwrap();
    let mut frame = vec![VERSION];
    frame.extend((header.len() as u32).to_le_bytes());
    frame.extend(header);
    frame.extend(payload);
    frame
}

/// Refused alike on both sides of the wire.
fn refused(message: &Message, payload: &[u8]) -> FrameError {
    let error = frame::decode(&unchecked(message, payload)).unwrap_err();
    assert_eq!(frame::encode(message, payload).unwrap_err(), error);
    error
}

#[test]
fn the_layout_is_as_documented() {
    let (tensor, payload) = encode_floats(&[1.0, -2.0], &[1, 2], Encoding::F32).unwrap();
    let bytes = frame::encode(&activation(tensor.clone()), &payload).unwrap();
    assert_eq!(bytes[0], 1);
    let header = u32::from_le_bytes(bytes[1..5].try_into().unwrap()) as usize;
    assert_eq!(&bytes[5 + header..], [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
    // Variant 10; epoch 3, step 7, pass Train of micro-batch 2, hop 1; encoding F32, rank 2, 1x2, 8 bytes.
    assert_eq!(&bytes[5..16], [10, 3, 7, 0, 2, 1, 1, 2, 1, 2, 8]);

    let frame = frame::decode(&bytes).unwrap();
    assert_eq!(frame, Frame { message: activation(tensor), payload: &payload });
    assert!(bytes.as_ptr_range().contains(&frame.payload.as_ptr()), "the payload is borrowed");

    assert_eq!(frame::encode(&Message::Heartbeat, &[]).unwrap(), [1, 1, 0, 0, 0, 6]);
}

#[test]
fn every_way_of_being_cut_has_its_name() {
    let bytes = frame::encode(&Message::Ready { epoch: 300 }, &[]).unwrap();
    let part = |length: usize| match frame::decode(&bytes[..length]) {
        Err(FrameError::Truncated { part, bytes }) => (part, bytes),
        other => panic!("{other:?}"),
    };
    assert_eq!(part(0), ("version", 0));
    assert_eq!(part(1), ("header length", 1));
    assert_eq!(part(4), ("header length", 4));
    assert_eq!(part(5), ("header", 5));
    assert_eq!(part(7), ("header", 7));
    // The header itself may stop short within its declared length.
    assert!(matches!(frame::decode(&[1, 2, 0, 0, 0, 2, 0x80]), Err(FrameError::Header(_))));
    assert!(matches!(frame::decode(&[1, 0, 0, 0, 0]), Err(FrameError::Header(_))));
    // A variant nobody knows.
    assert!(matches!(frame::decode(&[1, 1, 0, 0, 0, 0x7f]), Err(FrameError::Header(_))));
}

#[test]
fn the_version_comes_before_everything_else() {
    assert_eq!(frame::decode(&[2]), Err(FrameError::Version { theirs: 2 }));
    let error = FrameError::Version { theirs: 0 };
    assert_eq!(Refusal::from(error), Refusal::Version { theirs: 0, ours: VERSION });
}

#[test]
fn oversized_frames_and_headers_are_refused() {
    let mut frame = vec![0; MAX_FRAME + 1];
    frame[0] = VERSION;
    let error = frame::decode(&frame).unwrap_err();
    assert_eq!(error, FrameError::Oversized { bytes: MAX_FRAME + 1 });
    let limit = MAX_FRAME as u64;
    assert_eq!(Refusal::from(error), Refusal::Oversized { bytes: limit + 1, limit });

    let declared = (MAX_HEADER + 1) as u32;
    frame[1..5].copy_from_slice(&declared.to_le_bytes());
    frame.truncate(MAX_FRAME);
    assert_eq!(frame::decode(&frame), Err(FrameError::HeaderOversized { bytes: MAX_HEADER + 1 }));
    assert_eq!(
        frame::decode(&[VERSION, 255, 255, 255, 255]),
        Err(FrameError::HeaderOversized { bytes: u32::MAX as usize })
    );
}

#[test]
fn the_largest_tensor_fits() {
    let ids = vec![7; MAX_ELEMENTS as usize];
    let (tensor, payload) = encode_tokens(&ids, &[4, MAX_ELEMENTS as u32 / 4]).unwrap();
    assert_eq!(payload.len(), MAX_PAYLOAD);
    let bytes = frame::encode(&Message::Tokens(TensorFrame { to: TO, tensor }), &payload).unwrap();
    assert!(bytes.len() <= MAX_FRAME);
    assert_eq!(frame::decode(&bytes).unwrap().payload.len(), MAX_PAYLOAD);
}

#[test]
fn a_payload_needs_a_tensor() {
    let error = refused(&Message::Heartbeat, &[0; 3]);
    assert_eq!(error, FrameError::UnexpectedPayload { message: "Heartbeat", bytes: 3 });
}

#[test]
fn shape_encoding_and_length_must_agree() {
    let (good, payload) = encode_floats(&[0.5; 130], &[130], Encoding::Int8).unwrap();
    assert_eq!(good.bytes, 130 + 3 * 4);
    frame::encode(&activation(good.clone()), &payload).unwrap();

    let tensor_error = |tensor: TensorMeta, payload: &[u8]| match refused(&activation(tensor), payload) {
        FrameError::Tensor { message: "Activation", source } => source,
        other => panic!("{other}"),
    };
    let with = |shape: &[u32]| TensorMeta { shape: shape.to_vec(), ..good.clone() };
    assert_eq!(tensor_error(with(&[]), &payload), MetaError::Rank { rank: 0 });
    assert_eq!(tensor_error(with(&[1, 1, 1, 2, 65]), &payload), MetaError::Rank { rank: 5 });
    let huge = [u32::MAX; 4];
    assert_eq!(tensor_error(with(&huge), &payload), MetaError::Elements { shape: huge.to_vec() });
    let many = [MAX_ELEMENTS as u32 + 1];
    assert_eq!(tensor_error(with(&many), &payload), MetaError::Elements { shape: many.to_vec() });
    assert!(matches!(
        tensor_error(with(&[129]), &payload),
        MetaError::Bytes { declared: 142, expected: 141, .. }
    ));
    let other = TensorMeta { encoding: Encoding::F16, ..good.clone() };
    assert!(matches!(tensor_error(other, &payload), MetaError::Bytes { expected: 260, .. }));

    let short = refused(&activation(good.clone()), &payload[1..]);
    assert_eq!(short, FrameError::PayloadLength { message: "Activation", declared: 142, actual: 141 });
    let none = refused(&activation(good), &[]);
    assert_eq!(none, FrameError::PayloadLength { message: "Activation", declared: 142, actual: 0 });
}

#[test]
fn lengths_follow_from_shape_and_encoding() {
    let bytes = TensorMeta::expected_bytes;
    assert_eq!(bytes(Encoding::U32, &[2, 3]), Some(24));
    assert_eq!(bytes(Encoding::F32, &[2, 3]), Some(24));
    assert_eq!(bytes(Encoding::F16, &[2, 3]), Some(12));
    assert_eq!(bytes(Encoding::Int8, &[64]), Some(68));
    assert_eq!(bytes(Encoding::Int8, &[65]), Some(73));
    // A zero counts wherever it stands; products are checked.
    assert_eq!(bytes(Encoding::Int8, &[u32::MAX, u32::MAX, u32::MAX, 0]), Some(0));
    assert_eq!(bytes(Encoding::F16, &[u32::MAX; 3]), None);
    assert_eq!(bytes(Encoding::F32, &[u32::MAX, u32::MAX]), None);
    assert_eq!(bytes(Encoding::F32, &[1 << 31, 1 << 30]), Some(1 << 63));
}

#[test]
fn texts_and_lists_keep_their_limits() {
    let hello = |name: String| {
        Message::Hello(Hello { protocol: VERSION, build: "test".into(), kind: WorkerKind::Native, name })
    };
    // Characters count, not bytes.
    frame::encode(&hello("ß".repeat(limits::NAME)), &[]).unwrap();
    let error = refused(&hello("ß".repeat(limits::NAME + 1)), &[]);
    let limit = LimitError { field: "Hello.name", actual: 65, limit: 64, unit: "characters" };
    assert_eq!(error, FrameError::Limit(limit));
    assert_eq!(error.to_string(), "Hello.name has 65 characters: at most 64 are allowed");

    let long = "x".repeat(limits::SENTENCE + 1);
    let field = |message: Message| match refused(&message, &[]) {
        FrameError::Limit(LimitError { field, .. }) => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(Message::Leaving { reason: long.clone() }), "Leaving.reason");
    let fault = Fault { epoch: 0, kind: FaultKind::Device, detail: long.clone() };
    assert_eq!(field(Message::Fault(fault)), "Fault.detail");
    assert_eq!(field(Message::Refuse(Refusal::BadProfile { detail: long.clone() })), "Refuse.detail");
    let message = "Hello".to_owned();
    assert_eq!(field(Message::Refuse(Refusal::NotInPlan { message, detail: long })), "Refuse.detail");
    let report = StepReport {
        epoch: 0,
        step: 0,
        squared_norm: 0.0,
        losses: vec![0.0; limits::LOSSES + 1],
        timings: Timings::default(),
        vitals: Vitals::default(),
    };
    assert_eq!(field(Message::StepReport(report)), "StepReport.losses");
}

/// No message within the limits is too long for its header.
#[test]
fn the_longest_assignment_fits_into_a_header() {
    let part = Part { embedding: true, first_layer: u32::MAX, end_layer: u32::MAX, head: true };
    let mut assignment = Assignment {
        epoch: u64::MAX,
        hops: vec![Hop { index: u32::MAX, part }; limits::HOPS],
        hop_count: u32::MAX,
        first_step: u64::MAX,
        micro_batches: u32::MAX,
        window: u32::MAX,
        weights: WeightSource::Snapshot(vec![
            BlobRef { hash: BlobHash([255; 32]), bytes: u64::MAX };
            limits::BLOBS
        ]),
    };
    let bytes = frame::encode(&Message::Assign(assignment.clone()), &[]).unwrap();
    assert!(frame::decode(&bytes).is_ok());

    assignment.hops.push(assignment.hops[0].clone());
    let limit = LimitError { field: "Assign.hops", actual: 1025, limit: 1024, unit: "entries" };
    assert_eq!(refused(&Message::Assign(assignment), &[]), FrameError::Limit(limit));
}

#[test]
fn a_refusal_says_what_was_wrong() {
    let refusal = Refusal::from(refused(&Message::Pausing, &[0]));
    assert_eq!(
        refusal.to_string(),
        "the frame could not be read: Pausing carries no tensor, yet 1 bytes follow its header: send it without a payload"
    );
}

#[test]
fn long_texts_are_shortened_to_fit() {
    assert_eq!(limits::shorten("short", 5), "short");
    assert_eq!(limits::shorten("longer", 5), "long…");
    assert_eq!(limits::shorten("äöüß", 3), "äö…");
    assert_eq!(limits::shorten("any", 0), "");
}
