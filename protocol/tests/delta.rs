//! A delta arrives as it was sent, within what its encoding loses, or is refused in words.

#![allow(clippy::unwrap_used)]

use std::{env, fs, path::PathBuf};

use proptest::{collection::vec, prelude::*};
use protocol::{
    blob::BlobHash,
    delta::{Delta, DeltaEncoding, DeltaError, DeltaExpectation, DeltaHeader, decode, encode, encoded_bytes},
    limits::HEADER_BYTES,
    tensor::{
        CodecError,
        int8::{self, WIRE_BLOCK},
        top_k,
    },
};
use safetensors::SafeTensors;
use serde_json::Value;

const ENCODINGS: [DeltaEncoding; 4] =
    [DeltaEncoding::F32, DeltaEncoding::F16, DeltaEncoding::Int8, DeltaEncoding::TopK { per_mille: 300 }];

fn header(encoding: DeltaEncoding, tensors: &[Vec<f32>]) -> DeltaHeader {
    DeltaHeader {
        round: 7,
        block: 2,
        base: BlobHash::of(b"block"),
        table: BlobHash::of(b"table"),
        encoding,
        lengths: tensors.iter().map(|tensor| tensor.len() as u32).collect(),
    }
}

fn expecting(header: &DeltaHeader) -> DeltaExpectation<'_> {
    DeltaExpectation {
        round: header.round,
        block: header.block,
        base: header.base,
        table: header.table,
        encoding: header.encoding,
        lengths: &header.lengths,
        largest: 1e30,
    }
}

/// Encodes without earlier residuals.
fn encoded(encoding: DeltaEncoding, tensors: &[Vec<f32>]) -> (DeltaHeader, Vec<u8>) {
    let header = header(encoding, tensors);
    let bytes = encode(&header, tensors, Some(&mut Vec::new())).unwrap();
    (header, bytes)
}

/// A file of this header and payload, whatever they hold.
fn file(header: &[u8], payload: &[u8]) -> Vec<u8> {
    [b"CDL1", &(header.len() as u32).to_le_bytes()[..], header, payload].concat()
}

fn tensors() -> impl Strategy<Value = Vec<Vec<f32>>> {
    let value =
        || prop_oneof![4 => -1.0..1_f32, 1 => -60_000.0..60_000_f32, 1 => Just(0.0), 1 => Just(1e-45)];
    vec(vec(value(), 0..150), 0..5)
}

fn encoding() -> impl Strategy<Value = DeltaEncoding> {
    prop_oneof![
        Just(DeltaEncoding::F32),
        Just(DeltaEncoding::F16),
        Just(DeltaEncoding::Int8),
        (0..1_100_u32).prop_map(|per_mille| DeltaEncoding::TopK { per_mille }),
    ]
}

fn bits(tensor: &[f32]) -> Vec<u32> {
    tensor.iter().map(|value| value.to_bits()).collect()
}

/// What decoding must give, whoever wrote the bytes.
fn is_sound(bytes: &[u8], expected: &DeltaExpectation<'_>) -> Result<(), TestCaseError> {
    match decode(bytes, expected) {
        Ok(Delta { tensors, body: _ }) => {
            let lengths: Vec<u32> = tensors.iter().map(|tensor| tensor.len() as u32).collect();
            prop_assert_eq!(&lengths[..], expected.lengths);
            prop_assert!(tensors.iter().flatten().all(|value| value.abs() <= expected.largest));
        }
        Err(error) => prop_assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_delta_arrives_within_what_its_encoding_loses(tensors in tensors(), encoding in encoding()) {
        let header = header(encoding, &tensors);
        let mut residuals = Vec::new();
        let bytes = encode(&header, &tensors, Some(&mut residuals)).unwrap();
        let payload = &bytes[bytes.len() - encoded_bytes(encoding, &header.lengths) as usize..];
        prop_assert_eq!(bytes.len(), 8 + postcard::to_stdvec(&header).unwrap().len() + payload.len());

        let delta = decode(&bytes, &expecting(&header)).unwrap();
        prop_assert_eq!(delta.body, BlobHash::of(payload));
        prop_assert_eq!(delta.tensors.len(), tensors.len());
        for (number, (sent, got)) in tensors.iter().zip(&delta.tensors).enumerate() {
            prop_assert_eq!(sent.len(), got.len());
            let scales = int8::quantize(sent, WIRE_BLOCK).unwrap().scales;
            for (index, (&sent, &got)) in sent.iter().zip(got).enumerate() {
                let off = (f64::from(sent) - f64::from(got)).abs();
                let allowed = match encoding {
                    DeltaEncoding::F32 => 0.0,
                    // Half a unit in the last place: 2^-11 of a normal number, 2^-25 of a subnormal one.
                    DeltaEncoding::F16 => f64::from(sent.abs() / 2048.0).max(2_f64.powi(-25)),
                    // Half a scale, and the rounding of f32; a subnormal scale is itself a coarse rounding.
                    DeltaEncoding::Int8 => {
                        f64::from(scales[index / WIRE_BLOCK.get()]) * 0.501 + 64.0 * 2_f64.powi(-149)
                    }
                    DeltaEncoding::TopK { .. } => f64::from(residuals[number][index].abs()),
                };
                prop_assert!(off <= allowed, "{encoding}: {sent} became {got}, off by {off}");
            }
        }
    }

    #[test]
    fn a_flipped_byte_gives_an_error_or_a_sound_delta(
        tensors in tensors(), encoding in encoding(), at in any::<prop::sample::Index>(), flip in 1..=u8::MAX,
    ) {
        let (header, mut bytes) = encoded(encoding, &tensors);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let expected = expecting(&header);
        is_sound(&bytes, &expected)?;
        let payload = bytes.len() - encoded_bytes(encoding, &header.lengths) as usize;
        if at < payload {
            prop_assert!(decode(&bytes, &expected).is_err(), "byte {at} of the {payload} before the payload");
        }
    }

    #[test]
    fn a_cut_or_extended_delta_is_refused(
        tensors in tensors(), encoding in encoding(), at in any::<prop::sample::Index>(),
        more in vec(any::<u8>(), 1..10),
    ) {
        let (header, bytes) = encoded(encoding, &tensors);
        let cut = decode(&bytes[..at.index(bytes.len())], &expecting(&header));
        prop_assert!(matches!(cut, Err(DeltaError::Truncated { .. })), "{cut:?}");
        let trailing = DeltaError::Trailing { bytes: more.len() as u64 };
        prop_assert_eq!(decode(&[bytes, more].concat(), &expecting(&header)), Err(trailing));
    }

    #[test]
    fn any_payload_gives_an_error_or_a_sound_delta(
        encoding in encoding(), lengths in vec(0..100_u32, 0..4), bytes in vec(any::<u8>(), 4 * 400 + 800),
    ) {
        let mut header = header(encoding, &[]);
        header.lengths = lengths;
        let payload = &bytes[..encoded_bytes(encoding, &header.lengths).min(bytes.len() as u64) as usize];
        is_sound(&file(&postcard::to_stdvec(&header).unwrap(), payload), &expecting(&header))?;
    }

    #[test]
    fn any_delta_bytes_give_an_error(bytes in vec(any::<u8>(), 0..300), magic in any::<bool>()) {
        let bytes = if magic { file(&bytes, &[]) } else { bytes };
        prop_assert!(decode(&bytes, &expecting(&header(DeltaEncoding::F32, &[vec![1.0; 3]]))).is_err());
    }

    /// What has been sent and what is kept add up to all gradients, whatever the rounding.
    #[test]
    fn top_k_deltas_lose_nothing_over_rounds(
        rounds in vec((vec(-1.0..1_f32, 40), vec(-1.0..1_f32, 3)), 1..8), per_mille in 0..400_u32,
    ) {
        let encoding = DeltaEncoding::TopK { per_mille };
        let mut residuals = Vec::new();
        let (mut wanted, mut arrived) = (vec![0.0_f64; 43], vec![0.0_f64; 43]);
        for (first, second) in &rounds {
            let gradients = vec![first.clone(), second.clone()];
            let header = header(encoding, &gradients);
            let bytes = encode(&header, &gradients, Some(&mut residuals)).unwrap();
            let delta = decode(&bytes, &expecting(&header)).unwrap();
            wanted.iter_mut().zip(gradients.iter().flatten()).for_each(|(sum, v)| *sum += f64::from(*v));
            arrived.iter_mut().zip(delta.tensors.iter().flatten()).for_each(|(sum, v)| *sum += f64::from(*v));
            for (tensor, sent) in delta.tensors.iter().enumerate() {
                let count = sent.iter().filter(|value| **value != 0.0).count();
                prop_assert!(count <= top_k::count(sent.len(), per_mille), "tensor {tensor}");
            }
        }
        for (index, kept) in residuals.iter().flatten().enumerate() {
            // One rounding of a sum below 8 a round.
            let allowed = rounds.len() as f64 * 8.0 * f64::from(f32::EPSILON);
            prop_assert!((wanted[index] - arrived[index] - f64::from(*kept)).abs() <= allowed);
        }
    }
}

#[test]
fn every_difference_from_what_was_asked_has_its_own_error() {
    let tensors = vec![vec![1.0, -2.0, 3.0], vec![0.5; 2]];
    let (sent, bytes) = encoded(DeltaEncoding::F32, &tensors);
    let (other, good) = (BlobHash::of(b"other"), expecting(&sent));
    assert!(decode(&bytes, &good).is_ok());

    let refused = |expected: DeltaExpectation<'_>, error: DeltaError| {
        assert_eq!(decode(&bytes, &expected), Err(error.clone()));
        error.to_string()
    };
    let round = refused(DeltaExpectation { round: 8, ..good }, DeltaError::Round { found: 7, expected: 8 });
    assert!(round.starts_with("delta.round is 7, round 8 is open"), "{round}");
    refused(DeltaExpectation { block: 0, ..good }, DeltaError::Block { found: 2, expected: 0 });
    refused(DeltaExpectation { base: other, ..good }, DeltaError::Base { found: sent.base, expected: other });
    refused(
        DeltaExpectation { table: other, ..good },
        DeltaError::Table { found: sent.table, expected: other },
    );
    let top_k = DeltaEncoding::TopK { per_mille: 50 };
    let encoding = refused(
        DeltaExpectation { encoding: top_k, ..good },
        DeltaError::Encoding { found: DeltaEncoding::F32, expected: top_k },
    );
    assert!(encoding.contains("is f32, the run uses top-k 50‰"), "{encoding}");
    refused(DeltaExpectation { lengths: &[3], ..good }, DeltaError::Tensors { found: 2, expected: 1 });
    refused(
        DeltaExpectation { lengths: &[3, 4], ..good },
        DeltaError::Length { tensor: 1, found: 2, expected: 4 },
    );
    refused(
        DeltaExpectation { largest: 2.5, ..good },
        DeltaError::Absurd { tensor: 0, index: 2, value: 3.0, largest: 2.5 },
    );
    assert!(decode(&bytes, &DeltaExpectation { largest: 3.0, ..good }).is_ok());
}

/// Another per mille is another encoding, though the payload could be as long.
#[test]
fn top_k_of_another_share_is_refused() {
    let tensors = vec![vec![1.0; 10]];
    let (header, bytes) = encoded(DeltaEncoding::TopK { per_mille: 50 }, &tensors);
    let expected = DeltaEncoding::TopK { per_mille: 60 };
    let error = decode(&bytes, &DeltaExpectation { encoding: expected, ..expecting(&header) });
    assert_eq!(error, Err(DeltaError::Encoding { found: header.encoding, expected }));
}

#[test]
fn what_is_no_delta_is_refused() {
    let (header, bytes) = encoded(DeltaEncoding::F16, &[vec![1.0; 3]]);
    let expected = expecting(&header);
    let truncated = |part, needed, actual| Err(DeltaError::Truncated { part, needed, actual });
    assert_eq!(decode(&[], &expected), truncated("magic", 4, 0));
    assert_eq!(decode(b"CDL2....", &expected), Err(DeltaError::Magic { found: *b"CDL2" }));
    assert_eq!(decode(b"CDL1..", &expected), truncated("header length", 4, 2));
    assert_eq!(decode(b"CDL1\x09\0\0\0abc", &expected), truncated("header", 9, 3));
    assert_eq!(decode(&bytes[..bytes.len() - 1], &expected), truncated("payload", 6, 5));

    let oversized = [b"CDL1", &u32::MAX.to_le_bytes()[..]].concat();
    assert_eq!(decode(&oversized, &expected), Err(DeltaError::HeaderOversized { bytes: u32::MAX as usize }));
    assert!(matches!(decode(&file(&[0x80; 40], &[]), &expected), Err(DeltaError::Header(_))));
    // A header that claims four thousand million lengths and has none.
    let mut endless = postcard::to_stdvec(&DeltaHeader { lengths: Vec::new(), ..header.clone() }).unwrap();
    endless.pop();
    endless.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert!(matches!(decode(&file(&endless, &[]), &expected), Err(DeltaError::Header(_))));
    let head = [postcard::to_stdvec(&header).unwrap(), vec![0, 0]].concat();
    assert_eq!(decode(&file(&head, &[0; 6]), &expected), Err(DeltaError::TrailingHeader { bytes: 2 }));
}

#[test]
fn hostile_numbers_are_refused() {
    let decoded = |encoding, lengths: &[u32], payload: &[u8]| {
        let mut header = header(encoding, &[]);
        header.lengths = lengths.to_vec();
        let error =
            decode(&file(&postcard::to_stdvec(&header).unwrap(), payload), &expecting(&header)).unwrap_err();
        assert!(!error.to_string().is_empty());
        error
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let (one, infinity) = (1_f32.to_bits(), f32::INFINITY.to_bits());

    let error = decoded(DeltaEncoding::F32, &[1, 2], &words(&[one, one, infinity]));
    let source = CodecError::NotFinite { index: 1, value: f32::INFINITY };
    assert_eq!(error, DeltaError::Tensor { tensor: 1, source });
    let not_finite = |error| {
        matches!(error, DeltaError::Tensor { tensor: 0, source: CodecError::NotFinite { index: 1, .. } })
    };
    assert!(not_finite(decoded(DeltaEncoding::F32, &[2], &words(&[one, f32::NAN.to_bits()]))));
    assert!(not_finite(decoded(DeltaEncoding::F16, &[2], &[0, 0, 0, 0x7c])));
    let scale = decoded(DeltaEncoding::Int8, &[1], &[words(&[infinity]), vec![1]].concat());
    assert!(matches!(scale, DeltaError::Tensor { tensor: 0, source: CodecError::Scale { .. } }));
    let quantum = decoded(DeltaEncoding::Int8, &[1], &[words(&[one]), vec![0x80]].concat());
    assert!(matches!(quantum, DeltaError::Tensor { tensor: 0, source: CodecError::Quantum { index: 0 } }));

    let two_of_four = DeltaEncoding::TopK { per_mille: 500 };
    let sparse = |indices: [u32; 2], values: [u32; 2]| {
        decoded(two_of_four, &[4], &[words(&indices), words(&values)].concat())
    };
    assert_eq!(sparse([1, 4], [one; 2]), DeltaError::Index { tensor: 0, index: 4, length: 4 });
    assert_eq!(sparse([0, u32::MAX], [one; 2]), DeltaError::Index { tensor: 0, index: u32::MAX, length: 4 });
    assert_eq!(sparse([2, 2], [one; 2]), DeltaError::Order { tensor: 0, before: 2, index: 2 });
    assert_eq!(sparse([2, 1], [one; 2]), DeltaError::Order { tensor: 0, before: 2, index: 1 });
    assert!(not_finite(sparse([0, 1], [one, infinity])));
}

#[test]
fn what_cannot_be_sent_is_named_and_leaves_the_residuals() {
    let top_k = DeltaEncoding::TopK { per_mille: 500 };
    let good = vec![vec![1.0, 2.0], vec![3.0]];
    assert_eq!(encode(&header(top_k, &good), &good, None), Err(DeltaError::NoResiduals));
    assert!(encode(&header(DeltaEncoding::Int8, &good), &good, None).is_ok());

    let mut residuals = vec![vec![0.25, 0.5], vec![1.0]];
    let before = residuals.clone();
    let mut refused = |tensors: &[Vec<f32>], lengths: &[u32]| {
        let header = DeltaHeader { lengths: lengths.to_vec(), ..header(top_k, &[]) };
        let error = encode(&header, tensors, Some(&mut residuals)).unwrap_err();
        assert_eq!(residuals, before, "{error}");
        error
    };
    let length = DeltaError::Length { tensor: 1, found: 1, expected: 2 };
    assert_eq!(refused(&good, &[2, 2]), length);
    assert_eq!(refused(&good, &[2]), DeltaError::Tensors { found: 2, expected: 1 });
    // Residuals of other lengths.
    let length = DeltaError::Length { tensor: 0, found: 2, expected: 1 };
    assert_eq!(refused(&[vec![1.0], vec![3.0]], &[1, 1]), length);
    // The first tensor has been selected from when the second fails.
    let source = CodecError::NotFinite { index: 0, value: f32::INFINITY };
    assert_eq!(
        refused(&[vec![1.0, 2.0], vec![f32::INFINITY]], &[2, 1]),
        DeltaError::Tensor { tensor: 1, source }
    );

    for encoding in ENCODINGS {
        let infinite = vec![vec![0.0], vec![0.0, f32::NAN]];
        let error = encode(&header(encoding, &infinite), &infinite, Some(&mut Vec::new())).unwrap_err();
        let source = CodecError::NotFinite { index: 1, value: f32::NAN };
        // NaN differs from itself.
        assert_eq!(format!("{error:?}"), format!("{:?}", DeltaError::Tensor { tensor: 1, source }));
    }
    let many = vec![Vec::new(); HEADER_BYTES];
    let error = encode(&header(DeltaEncoding::F32, &many), &many, None).unwrap_err();
    assert!(matches!(error, DeltaError::HeaderOversized { bytes } if bytes > HEADER_BYTES));
}

#[test]
fn copies_have_one_body_whatever_their_headers() {
    let tensors = vec![vec![0.5, -0.25], vec![1.0]];
    for encoding in ENCODINGS {
        let (header, bytes) = encoded(encoding, &tensors);
        let later = DeltaHeader { round: 8, base: BlobHash::of(b"later"), ..header.clone() };
        let replayed = encode(&later, &tensors, Some(&mut Vec::new())).unwrap();
        assert_ne!(bytes, replayed);
        let body = |bytes: &[u8], header: &DeltaHeader| decode(bytes, &expecting(header)).unwrap().body;
        assert_eq!(body(&bytes, &header), body(&replayed, &later));
        let (header, other) = encoded(encoding, &[vec![0.75, -0.25], vec![1.0]]);
        assert_ne!(body(&bytes, &header), body(&other, &header), "{encoding}");
    }
}

#[test]
fn payloads_are_as_long_as_stated() {
    let lengths = [0, 1, 64, 65];
    assert_eq!(encoded_bytes(DeltaEncoding::F32, &lengths), 4 * 130);
    assert_eq!(encoded_bytes(DeltaEncoding::F16, &lengths), 2 * 130);
    assert_eq!(encoded_bytes(DeltaEncoding::Int8, &lengths), 130 + 4 * (1 + 1 + 2));
    assert_eq!(encoded_bytes(DeltaEncoding::TopK { per_mille: 50 }, &lengths), 8 * (1 + 4 + 4));
    assert_eq!(encoded_bytes(DeltaEncoding::F32, &[u32::MAX; 4]), 16 * u64::from(u32::MAX));
}

#[test]
fn delta_encodings_have_names() {
    assert_eq!(ENCODINGS.map(|encoding| encoding.to_string()), ["f32", "f16", "int8", "top-k 300‰"]);
    let json = serde_json::to_string(&ENCODINGS).unwrap();
    assert_eq!(json, r#"["f32","f16","int8",{"top_k":{"per_mille":300}}]"#);
    assert_eq!(serde_json::from_str::<[DeltaEncoding; 4]>(&json).unwrap(), ENCODINGS);
}

/// The golden rounds of top-k, through the file: index, value and residual, bit for bit.
#[test]
fn golden_top_k_through_the_delta() {
    let folder = env::var_os("COHORT_GOLDEN").map_or_else(|| PathBuf::from("../tests/golden"), PathBuf::from);
    let read = |name| fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let json: Value = serde_json::from_slice(&read("codec.json")).unwrap();
    let tensors = read("codec.safetensors");
    let tensors = SafeTensors::deserialize(&tensors).unwrap();
    let words = |name: String| {
        let words = tensors.tensor(&name).unwrap().data().as_chunks::<4>().0.iter();
        words.map(|&word| u32::from_le_bytes(word)).collect::<Vec<_>>()
    };

    let encoding = DeltaEncoding::TopK { per_mille: json["topk"]["per_mille"].as_u64().unwrap() as u32 };
    let mut compared = 0;
    for case in json["topk"]["cases"].as_array().unwrap() {
        let (name, length) = (case["name"].as_str().unwrap(), case["length"].as_u64().unwrap() as usize);
        if length == 0 {
            continue;
        }
        let mut residuals = Vec::new();
        for round in 0..case["rounds"].as_u64().unwrap() {
            let part = |part: &str| words(format!("topk.{name}.{round}.{part}"));
            let gradient = part("gradient").into_iter().map(f32::from_bits).collect::<Vec<_>>();
            let header = header(encoding, std::slice::from_ref(&gradient));
            let bytes = encode(&header, &[gradient], Some(&mut residuals)).unwrap();
            let (index, value) = (part("index"), part("value"));
            let payload: Vec<u8> = index.iter().chain(&value).flat_map(|word| word.to_le_bytes()).collect();
            assert!(bytes.ends_with(&payload), "{name} {round}");
            assert_eq!(bits(&residuals[0]), part("residual"), "{name} {round}");

            let delta = decode(&bytes, &expecting(&header)).unwrap();
            let mut dense = vec![0; length];
            index.iter().zip(value).for_each(|(&index, value)| dense[index as usize] = value);
            assert_eq!(bits(&delta.tensors[0]), dense, "{name} {round}");
            compared += 1;
        }
    }
    assert!(compared > 0);
}
