//! What the codecs refuse, and what they say.

#![allow(clippy::unwrap_used)]

use protocol::tensor::{
    CodecError, Encoding, MAX_ELEMENTS, MetaError, TensorMeta, decode_floats, decode_tokens, encode_floats,
    encode_tokens, f16,
    int8::{self, Blocks, WIRE_BLOCK},
    top_k,
};

/// The description an honest or hostile sender would give of these bytes.
fn described(encoding: Encoding, shape: &[u32], payload: &[u8]) -> TensorMeta {
    let checksum = xxhash_rust::xxh3::xxh3_64(payload);
    TensorMeta { encoding, shape: shape.to_vec(), bytes: payload.len() as u64, checksum }
}

#[test]
fn the_checksum_is_xxh3_of_the_payload() {
    let (meta, payload) = encode_tokens(&[1, 2, 3], &[3]).unwrap();
    assert_eq!(payload, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(meta, described(Encoding::U32, &[3], &payload));
    // xxh3 of nothing, as published with the algorithm.
    assert_eq!(encode_tokens(&[], &[0]).unwrap().0.checksum, 0x2d06_8005_38d3_94c2);
}

#[test]
fn a_flipped_bit_or_a_missing_byte_is_noticed() {
    for encoding in [Encoding::F32, Encoding::F16, Encoding::Int8] {
        let (meta, mut payload) = encode_floats(&[1.0, 2.0, -3.0], &[3], encoding).unwrap();
        payload[0] ^= 1;
        assert!(matches!(decode_floats(&meta, &payload), Err(CodecError::Checksum { .. })));
        payload.pop();
        assert!(matches!(decode_floats(&meta, &payload), Err(CodecError::Length { .. })));
    }
}

#[test]
fn floats_and_tokens_are_not_mixed_up() {
    assert!(matches!(encode_floats(&[1.0], &[1], Encoding::U32), Err(CodecError::Encoding { .. })));
    let (floats, payload) = encode_floats(&[1.0], &[1], Encoding::F32).unwrap();
    let error = decode_tokens(&floats, &payload).unwrap_err();
    assert_eq!(error.to_string(), "tensor.encoding is f32, which does not carry token ids: use u32");
    let (tokens, payload) = encode_tokens(&[1], &[1]).unwrap();
    assert!(matches!(decode_floats(&tokens, &payload), Err(CodecError::Encoding { .. })));
}

#[test]
fn the_shape_is_that_of_the_values() {
    let error = encode_floats(&[0.0; 6], &[2, 2], Encoding::F32).unwrap_err();
    assert_eq!(error, CodecError::Shape { shape: vec![2, 2], values: 6 });
    let error = encode_tokens(&[0; 6], &[7]).unwrap_err();
    assert_eq!(error, CodecError::Shape { shape: vec![7], values: 6 });
    let error = encode_floats(&[0.0], &[], Encoding::F32).unwrap_err();
    assert_eq!(error, CodecError::Meta(MetaError::Rank { rank: 0 }));
    let error = encode_floats(&[0.0], &[MAX_ELEMENTS as u32, 2], Encoding::F16).unwrap_err();
    assert_eq!(error, CodecError::Meta(MetaError::Elements { shape: vec![MAX_ELEMENTS as u32, 2] }));
}

/// The decoder trusts no description, even one that passed nobody's frame check.
#[test]
fn a_description_is_checked_before_the_payload() {
    let meta = TensorMeta { encoding: Encoding::F32, shape: vec![u32::MAX; 4], bytes: 4, checksum: 0 };
    assert!(matches!(decode_floats(&meta, &[0; 4]), Err(CodecError::Meta(MetaError::Elements { .. }))));
    let meta = described(Encoding::F32, &[2], &[0; 4]);
    assert!(matches!(decode_floats(&meta, &[0; 4]), Err(CodecError::Meta(MetaError::Bytes { .. }))));
}

#[test]
fn payloads_that_are_not_finite_are_refused() {
    for bits in [0x7f80_0000_u32, 0xff80_0000, 0x7fc0_0000, 0x7f80_0001] {
        let payload = [1.0_f32.to_bits(), bits].map(u32::to_le_bytes).concat();
        let error = decode_floats(&described(Encoding::F32, &[2], &payload), &payload).unwrap_err();
        assert!(matches!(error, CodecError::NotFinite { index: 1, .. }), "{error}");
    }
    for code in [0x7c00_u16, 0xfc00, 0x7e00, 0x7c01] {
        let payload = [0x3c00, code].map(u16::to_le_bytes).concat();
        let error = decode_floats(&described(Encoding::F16, &[2], &payload), &payload).unwrap_err();
        assert!(matches!(error, CodecError::NotFinite { index: 1, .. }), "{error}");
    }
}

#[test]
fn int8_blocks_no_encoder_makes_are_refused() {
    let decode = |scale: f32, quantum: i8| {
        let mut payload = scale.to_le_bytes().to_vec();
        payload.push(quantum as u8);
        decode_floats(&described(Encoding::Int8, &[1], &payload), &payload)
    };
    assert_eq!(decode(0.5, -127).unwrap(), [-63.5]);
    // Even with q = 0, for which the product would be finite or NaN.
    for scale in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, f32::MAX, f32::MAX / 126.0] {
        for quantum in [0, 1, 127] {
            let error = decode(scale, quantum).unwrap_err();
            assert!(matches!(error, CodecError::Scale { block: 0, .. }), "{error}");
        }
    }
    assert_eq!(decode(1.0, -128), Err(CodecError::Quantum { index: 0 }));

    let blocks = Blocks { scales: vec![1.0], quanta: vec![0; 65] };
    let error = int8::dequantize(&blocks, WIRE_BLOCK).unwrap_err();
    assert_eq!(error, CodecError::Scales { scales: 1, values: 65, block: 64 });
}

#[test]
fn int8_overflow_is_refused_by_the_encoder() {
    // The largest values round to a scale whose 127-fold is either finite or refused, never infinite.
    let mut refused = 0;
    for down in 0..1_000 {
        let value = -f32::from_bits(f32::MAX.to_bits() - down);
        match int8::quantize(&[1.0, value], WIRE_BLOCK) {
            Ok(blocks) => {
                assert!(int8::dequantize(&blocks, WIRE_BLOCK).unwrap().iter().all(|value| value.is_finite()));
            }
            Err(error) => {
                assert_eq!(error, CodecError::Overflow { index: 1, value, encoding: Encoding::Int8 });
                refused += 1;
            }
        }
    }
    assert!(refused < 1_000);
}

/// A scale of the smallest subnormal can stand for values of up to 190 of it: these clamp.
#[test]
fn int8_clamps_at_the_smallest_scale() {
    let tiny = f32::from_bits(1);
    let values = [f32::from_bits(190), -f32::from_bits(190), f32::from_bits(126), tiny];
    let blocks = int8::quantize(&values, WIRE_BLOCK).unwrap();
    assert_eq!(blocks, Blocks { scales: vec![tiny], quanta: vec![127, -127, 126, 1] });
    // One step below, the division underflows.
    let blocks = int8::quantize(&[f32::from_bits(63)], WIRE_BLOCK).unwrap();
    assert_eq!(blocks, Blocks { scales: vec![0.0], quanta: vec![0] });
}

#[test]
fn f16_says_which_value_overflows() {
    let error = f16::encode(&[1.0, -65_520.0]).unwrap_err();
    assert_eq!(error.to_string(), "value 1, -65520, overflows f16: send the tensor as f32");
    assert_eq!(f16::encode(&[65_519.996]).unwrap(), [0x7bff]);
}

#[test]
fn top_k_counts_in_integers() {
    assert_eq!([0, 1, 20, 21, 217, 1000].map(|n| top_k::count(n, 50)), [0, 1, 1, 2, 11, 50]);
    assert_eq!(top_k::count(10, 0), 1);
    assert_eq!(top_k::count(10, 1000), 10);
    assert_eq!(top_k::count(10, u32::MAX), 10);
    assert_eq!(top_k::count(usize::MAX, 1000), usize::MAX);
}

#[test]
fn top_k_leaves_the_residual_alone_when_it_refuses() {
    let mut residual = vec![1.0, f32::MAX];
    let error = top_k::select(&[1.0, f32::MAX], &mut residual, 500).unwrap_err();
    assert_eq!(error, CodecError::NotFinite { index: 1, value: f32::INFINITY });
    assert_eq!(residual, [1.0, f32::MAX]);
    let error = top_k::select(&[1.0], &mut residual, 500).unwrap_err();
    assert_eq!(error, CodecError::Residual { residual: 2, gradient: 1 });
}
