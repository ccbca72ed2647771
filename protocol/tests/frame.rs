//! Frames at their limits, and the words of refusals.

#![allow(clippy::unwrap_used)]

mod common;

use std::fmt::Debug;

use common::framed;
use protocol::{
    VERSION,
    blob::{BlobHash, BlobRef},
    checked::{FieldError, Problem},
    evaluation::Scores,
    frame::{self, Frame, FrameError, MAX_FRAME, MAX_PAYLOAD},
    limits::{self, HEADER_BYTES},
    message::*,
    refusal::Refusal,
    spec::*,
    tensor::{Encoding, MAX_ELEMENTS, MetaError, TensorMeta, encode_floats, encode_tokens},
};

const TO: Address = Address { epoch: 3, step: 7, pass: Pass::Train { micro_batch: 2 }, hop: 1 };

fn activation(tensor: TensorMeta) -> FromWorker {
    FromWorker::Relayed(Activation(TensorFrame { to: TO, tensor }).into())
}

fn up(message: impl Into<Up>) -> FromWorker {
    FromWorker::Up(message.into())
}

fn down(message: impl Into<Down>) -> ToWorker {
    ToWorker::Down(message.into())
}

/// As the coordinator reads a frame.
fn decode(bytes: &[u8]) -> Result<Frame<'_, FromWorker>, FrameError> {
    frame::decode(bytes)
}

/// Refused alike on both sides of the wire.
fn refused<M: FrameHeader + Debug>(message: &M, payload: &[u8]) -> FrameError {
    let error = frame::decode::<M>(&framed(&postcard::to_stdvec(message).unwrap(), payload)).unwrap_err();
    assert_eq!(frame::encode(message, payload).unwrap_err(), error);
    error
}

#[test]
fn the_layout_is_as_documented() {
    let (tensor, payload) = encode_floats(&[1.0, -2.0], &[1, 2], Encoding::F32).unwrap();
    let bytes = frame::encode(&activation(tensor.clone()), &payload).unwrap();
    assert_eq!(bytes[0], 3);
    let header = u32::from_le_bytes(bytes[1..5].try_into().unwrap()) as usize;
    assert_eq!(&bytes[5 + header..], [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
    // Relayed, Activation; epoch 3, step 7, pass Train of micro-batch 2, hop 1; encoding F32, rank 2, 1x2, 8 bytes.
    assert_eq!(&bytes[5..17], [0, 0, 3, 7, 0, 2, 1, 1, 2, 1, 2, 8]);

    let frame = decode(&bytes).unwrap();
    assert_eq!(frame, Frame { message: activation(tensor), payload: &payload });
    assert!(bytes.as_ptr_range().contains(&frame.payload.as_ptr()), "the payload is borrowed");

    // Up, its fourth message.
    assert_eq!(frame::encode(&up(Heartbeat {}), &[]).unwrap(), [3, 2, 0, 0, 0, 1, 3]);
    // Down, its fourteenth message: round 5, block 1, accepted.
    let outcome = DeltaOutcome { round: 5, block: 1, refused: None };
    assert_eq!(frame::encode(&down(outcome), &[]).unwrap(), [3, 5, 0, 0, 0, 1, 15, 5, 1, 0]);
}

#[test]
fn every_way_of_being_cut_has_its_name() {
    let bytes = frame::encode(&up(Ready { epoch: 300 }), &[]).unwrap();
    let part = |length: usize| match decode(&bytes[..length]) {
        Err(FrameError::Truncated { part, bytes }) => (part, bytes),
        other => panic!("{other:?}"),
    };
    assert_eq!(part(0), ("version", 0));
    assert_eq!(part(1), ("header length", 1));
    assert_eq!(part(4), ("header length", 4));
    assert_eq!(part(5), ("header", 5));
    assert_eq!(part(8), ("header", 8));
    // The header itself may stop short within its declared length.
    assert!(matches!(decode(&[3, 3, 0, 0, 0, 1, 6, 0x80]), Err(FrameError::Header(_))));
    assert!(matches!(decode(&[3, 1, 0, 0, 0, 1]), Err(FrameError::Header(_))));
    assert!(matches!(decode(&[3, 0, 0, 0, 0]), Err(FrameError::Header(_))));
    // A way and a message nobody knows.
    assert!(matches!(decode(&[3, 2, 0, 0, 0, 2, 0]), Err(FrameError::Header(_))));
    assert!(matches!(decode(&[3, 2, 0, 0, 0, 1, 0x7f]), Err(FrameError::Header(_))));
}

#[test]
fn the_version_comes_before_everything_else() {
    assert_eq!(VERSION, 3);
    assert_eq!(decode(&[4]), Err(FrameError::Version { theirs: 4 }));
    // A heartbeat of version 1.
    assert_eq!(decode(&[1, 1, 0, 0, 0, 6]), Err(FrameError::Version { theirs: 1 }));
    let error = FrameError::Version { theirs: 0 };
    assert_eq!(Refusal::from(error), Refusal::Version { theirs: 0, ours: VERSION });
}

#[test]
fn oversized_frames_and_headers_are_refused() {
    let mut frame = vec![0; MAX_FRAME + 1];
    frame[0] = VERSION;
    let error = decode(&frame).unwrap_err();
    assert_eq!(error, FrameError::Oversized { bytes: MAX_FRAME + 1 });
    let limit = MAX_FRAME as u64;
    assert_eq!(Refusal::from(error), Refusal::Oversized { bytes: limit + 1, limit });

    let declared = (HEADER_BYTES + 1) as u32;
    frame[1..5].copy_from_slice(&declared.to_le_bytes());
    frame.truncate(MAX_FRAME);
    assert_eq!(decode(&frame), Err(FrameError::HeaderOversized { bytes: HEADER_BYTES + 1 }));
    assert_eq!(
        decode(&[VERSION, 255, 255, 255, 255]),
        Err(FrameError::HeaderOversized { bytes: u32::MAX as usize })
    );
}

#[test]
fn the_largest_tensor_fits() {
    let ids = vec![7; MAX_ELEMENTS as usize];
    let (tensor, payload) = encode_tokens(&ids, &[4, MAX_ELEMENTS as u32 / 4]).unwrap();
    assert_eq!(payload.len(), MAX_PAYLOAD);
    let bytes = frame::encode(&down(Tokens(TensorFrame { to: TO, tensor })), &payload).unwrap();
    assert!(bytes.len() <= MAX_FRAME);
    assert_eq!(frame::decode::<ToWorker>(&bytes).unwrap().payload.len(), MAX_PAYLOAD);
}

#[test]
fn a_payload_needs_a_tensor() {
    let error = refused(&up(Heartbeat {}), &[0; 3]);
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

/// The field that a message is refused for, on both sides of the wire.
fn refused_field<M: FrameHeader + Debug>(message: &M, payload: &[u8]) -> FieldError {
    match refused(message, payload) {
        FrameError::Field(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn texts_and_lists_keep_their_limits() {
    let hello =
        |name: String| up(Hello { protocol: VERSION, build: "test".into(), kind: WorkerKind::Native, name });
    // Characters count, not bytes.
    frame::encode(&hello("ß".repeat(limits::NAME)), &[]).unwrap();
    let error = refused_field(&hello("ß".repeat(limits::NAME + 1)), &[]);
    let problem = Problem::TooMany { actual: 65, limit: 64, unit: "characters" };
    assert_eq!(error, FieldError { field: "Hello.name".into(), problem });
    assert_eq!(error.to_string(), "Hello.name has 65 characters: at most 64 are allowed");

    let long = "x".repeat(limits::SENTENCE + 1);
    assert_eq!(refused_field(&up(Leaving { reason: long.clone() }), &[]).field, "Leaving.reason");
    let fault = Fault { during: 0, kind: FaultKind::Device, detail: long.clone() };
    assert_eq!(refused_field(&up(fault), &[]).field, "Fault.detail");
    let refuse = |refusal| refused_field(&down(Refuse(refusal)), &[]).field;
    assert_eq!(refuse(Refusal::BadProfile { detail: long.clone() }), "Refuse.detail");
    let message = "Hello".to_owned();
    assert_eq!(refuse(Refusal::NotInPlan { message, detail: long }), "Refuse.detail");
    let report = StepReport { losses: vec![0.0; limits::LOSSES + 1], ..largest_step_report() };
    assert_eq!(refused_field(&up(report), &[]).field, "StepReport.losses");
}

#[test]
fn positions_and_micro_batches_keep_their_limits() {
    let (tensor, payload) = encode_floats(&[1.0], &[1], Encoding::F32).unwrap();
    let refused = |to: Address| {
        let frame = || TensorFrame { to, tensor: tensor.clone() };
        let forward = refused_field(&FromWorker::Relayed(Activation(frame()).into()), &payload);
        let back = refused_field(&ToWorker::Relayed(Gradient(frame()).into()), &payload);
        let tokens = refused_field(&down(Tokens(frame())), &payload);
        assert_eq!(forward.problem, back.problem);
        assert_eq!(forward.problem, tokens.problem);
        let path = forward.field.strip_prefix("Activation.").unwrap().to_owned();
        assert_eq!(back.field, format!("Gradient.{path}"));
        assert_eq!(tokens.field, format!("Tokens.{path}"));
        (path, forward.problem)
    };
    let beyond =
        |field: &str, limit| (field.to_owned(), Problem::TooLarge { value: u64::from(u32::MAX), limit });
    assert_eq!(refused(Address { hop: u32::MAX, ..TO }), beyond("to.hop", limits::HOPS as u64));
    let pass = Pass::Train { micro_batch: u32::MAX };
    assert_eq!(refused(Address { pass, ..TO }), beyond("to.pass.micro_batch", limits::LOSSES as u64));
    let pass = Pass::Validate { batch: u32::MAX };
    assert_eq!(refused(Address { pass, ..TO }), beyond("to.pass.batch", limits::VALIDATION_BATCHES));
    let (field, problem) = refused(Address { epoch: u64::MAX, ..TO });
    assert_eq!((&field[..], problem), ("to.epoch", Problem::TooLarge { value: u64::MAX, limit: 1 << 53 }));
}

fn largest_step_report() -> StepReport {
    StepReport {
        epoch: 1 << 53,
        step: 1 << 53,
        squared_norm: limits::SQUARED_NORM,
        losses: vec![1e9; limits::LOSSES],
        timings: Timings::default(),
        status: DeviceStatus { memory_bytes: limits::MEMORY_BYTES, pressure: Some(Pressure::Critical) },
    }
}

fn largest_blob() -> BlobRef {
    BlobRef { hash: BlobHash([255; 32]), bytes: limits::BLOB_BYTES }
}

/// Bytes of the header of a message that may be sent.
fn header_bytes<M: FrameHeader>(message: &M, payload: &[u8]) -> usize {
    let bytes = frame::encode(message, payload).unwrap();
    assert!(frame::decode::<M>(&bytes).is_ok());
    bytes.len() - payload.len() - 5
}

/// No message within the limits is too long for its header: these have the longest lists.
#[test]
fn the_longest_messages_fit_into_a_header() {
    let report = header_bytes(&up(largest_step_report()), &[]);
    assert!((4 * limits::LOSSES..=HEADER_BYTES).contains(&report), "{report}");

    let list = || vec![1e9; limits::BLOCKS];
    let scores = Scores {
        one_draw: 1e9,
        draws: limits::DRAWS as u32,
        many_draws: 1e9,
        from_zero: 1e9,
        chain: list(),
        alone: list(),
        local: list(),
        scrambled: list(),
    };
    let batch = limits::VALIDATION_BATCHES as u32;
    let report = header_bytes(&up(EvaluationReport { round: 1 << 53, batch, scores }), &[]);
    assert!((4 * 8 * limits::BLOCKS..=HEADER_BYTES).contains(&report), "{report}");

    let (windows, payload) = encode_tokens(&[0; 4], &[2, 1, 2]).unwrap();
    let mut task = RoundTask {
        round: 1 << 53,
        block: limits::BLOCKS as u32,
        base: largest_blob(),
        table: largest_blob(),
        seed: u64::MAX,
        learning_rates: vec![1e6; limits::LOCAL_STEPS],
        fresh: true,
        deadline_ms: 1 << 53,
    };
    let round = header_bytes(&down(Round { task: task.clone(), windows: windows.clone() }), &payload);
    assert!((8 * limits::LOCAL_STEPS..=HEADER_BYTES).contains(&round), "{round}");
    task.learning_rates.push(0.0);
    let error = refused_field(&down(Round { task, windows: windows.clone() }), &payload);
    let problem = Problem::TooMany { actual: 4097, limit: 4096, unit: "entries" };
    assert_eq!(error, FieldError { field: "Round.task.learning_rates".into(), problem });

    let blocks = vec![largest_blob(); limits::BLOBS];
    let table = largest_blob();
    let task = EvaluationTask { round: 1 << 53, batch, blocks, table, seed: u64::MAX, draws: 1000 };
    let evaluate = header_bytes(&down(Evaluate { task, windows }), &payload);
    assert!((32 * limits::BLOBS..=HEADER_BYTES).contains(&evaluate), "{evaluate}");

    let (ids, likeliest) = (vec![u32::MAX; limits::SCORED_ROWS], limits::LIKELIEST as u32);
    let reading = ReadRows {
        scored: ids,
        choices: limits::READ_ROWS as u32,
        first: 1 << 53,
        temperature: 1e6,
        top_k: u32::MAX,
        top_p: 1.0,
        seed: u64::MAX,
        likeliest,
    };
    let [positions, keep, rows] = [limits::POSITIONS as u32; 3];
    let text = TextRows { text: 1 << 53, positions, keep, rows, reading };
    let of = Traversal { epoch: 1 << 53, number: 1 << 53, hop: limits::HOPS as u32 };
    let (tensor, none) = encode_tokens(&[], &[0]).unwrap();
    let decode = Decode { of, texts: vec![text; limits::TEXTS], rows: tensor.clone() };
    let decode = header_bytes(&down(decode), &none);
    assert!((5 * limits::SCORED_ROWS * limits::TEXTS..=HEADER_BYTES).contains(&decode), "{decode}");
    let likeliest = vec![(u32::MAX, -1e20); limits::LIKELIEST];
    let token = ReadToken { id: u32::MAX, log_probability: -1e20, likeliest };
    let decoded = Decoded { of, seconds: 1e7, tokens: vec![token; limits::READ_ROWS], rows: tensor };
    let decoded = header_bytes(&up(decoded), &none);
    assert!((64 * limits::READ_ROWS..=HEADER_BYTES).contains(&decoded), "{decoded}");

    let most = limits::HOPS as u32;
    let part = Part { embedding: true, first_layer: most, end_layer: most, head: true };
    let mut assignment = Assignment {
        epoch: 1 << 53,
        hops: vec![Hop { index: most, part }; limits::HOPS],
        hop_count: most,
        first_step: 1 << 53,
        micro_batches: limits::LOSSES as u32,
        window: limits::LOSSES as u32,
        weights: WeightSource::Snapshot(vec![largest_blob(); limits::BLOBS]),
    };
    let assign = header_bytes(&down(Assign(assignment.clone())), &[]);
    assert!((32 * limits::BLOBS..=HEADER_BYTES).contains(&assign), "{assign}");

    assignment.hops.push(assignment.hops[0].clone());
    let problem = Problem::TooMany { actual: 1025, limit: 1024, unit: "entries" };
    let error = refused_field(&down(Assign(assignment)), &[]);
    assert_eq!(error, FieldError { field: "Assign.hops".into(), problem });
}

#[test]
fn a_refusal_says_what_was_wrong() {
    let refusal = Refusal::from(refused(&up(Heartbeat {}), &[0]));
    assert_eq!(
        refusal.to_string(),
        "the frame could not be read: Heartbeat carries no tensor, yet 1 bytes follow its header: send it without a payload"
    );
}

#[test]
fn numbers_of_three_hundred_digits_fit_into_a_refusal() {
    let report = ValidationReport { epoch: 1, step: 1, batch: 0, loss: -f32::MAX };
    let refusal = Refusal::from(refused(&up(report), &[]));
    assert!(refusal.to_string().contains("ValidationReport.loss is -3.4028234663852886e38"), "{refusal}");
    let words = Refusal::from(FrameError::Field(FieldError {
        field: "Welcome.run.optimizer.clip_norm".into(),
        problem: Problem::OutOfRange { value: -f64::MAX, least: 0.0, most: f64::MAX },
    }));
    assert!(frame::encode(&down(Refuse(words)), &[]).is_ok());
}

#[test]
fn long_texts_are_shortened_to_fit() {
    assert_eq!(limits::shorten("short", 5), "short");
    assert_eq!(limits::shorten("longer", 5), "long…");
    assert_eq!(limits::shorten("äöüß", 3), "äö…");
    assert_eq!(limits::shorten("any", 0), "");
}
