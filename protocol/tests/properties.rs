//! Whatever is sent arrives; whatever arrives is a message or a typed error.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fmt::Debug, num::NonZeroUsize};

use common::{
    Damage, Sent, apply_damage, damage, encoding, float_encoding, framed, from_worker, relayed, shape,
    to_worker, values,
};
use proptest::{collection::vec, prelude::*, sample::Index};
use protocol::{
    frame::{self, FrameError},
    limits::HEADER_BYTES,
    message::{Down, FrameHeader, FromWorker, Payload, Refuse, ToWorker},
    refusal::Refusal,
    tensor::{
        CodecError, Encoding, TensorMeta, decode_floats, decode_tokens, encode_floats, encode_tokens, f16,
        int8, top_k,
    },
};

/// What reading a frame must give, whoever wrote it: a message that can be sent on, with a payload whose
/// decoding is finite or a typed error; or an error that can be told to the sender.
fn read<M: Message>(bytes: &[u8]) -> Result<(), TestCaseError> {
    match frame::decode::<M>(bytes) {
        Ok(frame) => {
            let again = frame::encode(&frame.message, frame.payload).expect("what was read can be written");
            let reread = frame::decode(&again).expect("what was written can be read");
            prop_assert_eq!(&reread, &frame);
            if let Payload::Tensor(tensor) = frame.message.payload() {
                // The result lies in the types; here it must only come, and be finite.
                let _ = decode_tokens(tensor, frame.payload);
                if let Ok(values) = decode_floats(tensor, frame.payload) {
                    prop_assert!(values.iter().all(|value| value.is_finite()));
                }
            }
        }
        Err(error) => {
            prop_assert!(!error.to_string().is_empty());
            let refusal = ToWorker::from(Down::from(Refuse(Refusal::from(error))));
            prop_assert!(frame::encode(&refusal, &[]).is_ok());
        }
    }
    Ok(())
}

/// A header that can be compared and shown.
trait Message: FrameHeader + PartialEq + Debug {}
impl<M: FrameHeader + PartialEq + Debug> Message for M {}

fn arrives<M: Message>(sent: &Sent<M>) -> Result<(), TestCaseError> {
    let bytes = frame::encode(&sent.message, &sent.payload).unwrap();
    let frame = frame::decode::<M>(&bytes).unwrap();
    prop_assert_eq!(frame.payload, &sent.payload[..]);
    prop_assert_eq!(&frame.message, &sent.message);
    prop_assert_eq!(frame::encode(&frame.message, frame.payload).unwrap(), bytes);
    Ok(())
}

fn cut_is_refused<M: Message>(sent: &Sent<M>, at: Index) -> Result<(), TestCaseError> {
    let bytes = frame::encode(&sent.message, &sent.payload).unwrap();
    prop_assert!(frame::decode::<M>(&bytes[..at.index(bytes.len())]).is_err());
    Ok(())
}

fn extended_is_refused<M: Message>(sent: &Sent<M>, more: &[u8]) -> Result<(), TestCaseError> {
    let mut bytes = frame::encode(&sent.message, &sent.payload).unwrap();
    bytes.extend(more);
    prop_assert!(frame::decode::<M>(&bytes).is_err());
    Ok(())
}

fn trailing_is_refused<M: Message>(sent: &Sent<M>, more: &[u8]) -> Result<(), TestCaseError> {
    let mut header = postcard::to_stdvec(&sent.message).unwrap();
    header.extend(more);
    prop_assume!(header.len() <= HEADER_BYTES);
    let refused = FrameError::TrailingHeader { message: sent.message.name(), bytes: more.len() };
    let bytes = framed(&header, &sent.payload);
    prop_assert_eq!(frame::decode::<M>(&bytes), Err(refused));
    Ok(())
}

fn other_version_is_named<M: Message>(sent: &Sent<M>, theirs: u8) -> Result<(), TestCaseError> {
    let mut bytes = frame::encode(&sent.message, &sent.payload).unwrap();
    bytes[0] = theirs;
    let error = frame::decode::<M>(&bytes).unwrap_err();
    prop_assert_eq!(&error, &FrameError::Version { theirs });
    prop_assert_eq!(Refusal::from(error), Refusal::Version { theirs, ours: protocol::VERSION });
    Ok(())
}

fn damaged_frame_is_sound<M: Message>(sent: &Sent<M>, damage: &[Damage]) -> Result<(), TestCaseError> {
    let mut bytes = frame::encode(&sent.message, &sent.payload).unwrap();
    apply_damage(&mut bytes, damage);
    read::<M>(&bytes)
}

fn damaged_header_is_sound<M: Message>(sent: &Sent<M>, damage: &[Damage]) -> Result<(), TestCaseError> {
    let mut header = postcard::to_stdvec(&sent.message).unwrap();
    apply_damage(&mut header, damage);
    read::<M>(&framed(&header, &sent.payload))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_frame_arrives_as_it_was_sent(up in from_worker(), down in to_worker()) {
        arrives(&up)?;
        arrives(&down)?;
    }

    /// The coordinator forwards the bytes it got.
    #[test]
    fn a_relayed_frame_is_the_same_for_both_readers(sent in relayed()) {
        let up = frame::encode(&FromWorker::from(sent.message.clone()), &sent.payload).unwrap();
        let down = frame::encode(&ToWorker::from(sent.message.clone()), &sent.payload).unwrap();
        prop_assert_eq!(&up, &down);
        prop_assert_eq!(frame::decode::<ToWorker>(&up).unwrap().message, ToWorker::Relayed(sent.message));
    }

    #[test]
    fn a_cut_frame_is_refused(up in from_worker(), down in to_worker(), at in any::<Index>()) {
        cut_is_refused(&up, at)?;
        cut_is_refused(&down, at)?;
    }

    #[test]
    fn an_extended_frame_is_refused(
        up in from_worker(), down in to_worker(), more in vec(any::<u8>(), 1..10),
    ) {
        extended_is_refused(&up, &more)?;
        extended_is_refused(&down, &more)?;
    }

    #[test]
    fn trailing_header_bytes_are_refused(
        up in from_worker(), down in to_worker(), more in vec(any::<u8>(), 1..10),
    ) {
        trailing_is_refused(&up, &more)?;
        trailing_is_refused(&down, &more)?;
    }

    #[test]
    fn another_version_is_named(up in from_worker(), down in to_worker(), theirs in any::<u8>()) {
        prop_assume!(theirs != protocol::VERSION);
        other_version_is_named(&up, theirs)?;
        other_version_is_named(&down, theirs)?;
    }

    #[test]
    fn a_damaged_frame_is_a_message_or_an_error(
        up in from_worker(), down in to_worker(), damage in damage(),
    ) {
        damaged_frame_is_sound(&up, &damage)?;
        damaged_frame_is_sound(&down, &damage)?;
    }

    /// As above, with a header length that fits, so that more damage gets past the first checks.
    #[test]
    fn a_damaged_header_is_a_message_or_an_error(
        up in from_worker(), down in to_worker(), damage in damage(),
    ) {
        damaged_header_is_sound(&up, &damage)?;
        damaged_header_is_sound(&down, &damage)?;
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in vec(any::<u8>(), 0..300)) {
        read::<FromWorker>(&bytes)?;
        read::<ToWorker>(&bytes)?;
    }

    #[test]
    fn any_header_is_a_message_or_an_error(
        way in 0..3_u8, variant in 0..16_u8, header in vec(any::<u8>(), 0..200), payload in vec(any::<u8>(), 0..40),
    ) {
        let header: Vec<u8> = [&[way, variant], &header[..]].concat();
        read::<FromWorker>(&framed(&header, &payload))?;
        read::<ToWorker>(&framed(&header, &payload))?;
    }

    #[test]
    fn a_damaged_payload_does_not_decode(
        (shape, values) in shape().prop_flat_map(|shape| (Just(shape.clone()), values(&shape))),
        encoding in float_encoding(),
        damage in damage(),
    ) {
        let (meta, payload) = encode_floats(&values, &shape, encoding).unwrap();
        let mut damaged = payload.clone();
        apply_damage(&mut damaged, &damage);
        prop_assume!(damaged != payload);
        let error = decode_floats(&meta, &damaged).unwrap_err();
        prop_assert!(matches!(error, CodecError::Length { .. } | CodecError::Checksum { .. }), "{error}");
    }

    /// A hostile sender computes the right checksum.
    #[test]
    fn any_payload_decodes_to_finite_values_or_an_error(
        encoding in encoding(), shape in shape(), bytes in vec(any::<u8>(), 4 * 7_usize.pow(4)),
    ) {
        let length = TensorMeta::expected_bytes(encoding, &shape).unwrap();
        let payload = &bytes[..length as usize];
        let checksum = xxhash_rust::xxh3::xxh3_64(payload);
        let meta = TensorMeta { encoding, shape, bytes: length, checksum };
        match decode_floats(&meta, payload) {
            Ok(values) => prop_assert!(values.iter().all(|value| value.is_finite())),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        prop_assert_eq!(decode_tokens(&meta, payload).is_ok(), encoding == Encoding::U32);
    }

    #[test]
    fn f32_keeps_the_bits(values in vec(prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO, 0..200)) {
        let (meta, payload) = encode_floats(&values, &[values.len() as u32], Encoding::F32).unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&decode_floats(&meta, &payload).unwrap()), bits(&values));
    }

    #[test]
    fn tokens_keep_their_ids(ids in vec(any::<u32>(), 0..200)) {
        let (meta, payload) = encode_tokens(&ids, &[ids.len() as u32]).unwrap();
        prop_assert_eq!(decode_tokens(&meta, &payload).unwrap(), ids);
    }

    /// Whatever is encoded decodes, and encodes to the same again: codes are fixed points.
    #[test]
    fn f16_of_any_finite_values(values in vec(prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL, 1..200)) {
        match f16::encode(&values) {
            Ok(codes) => {
                let decoded = f16::decode(&codes).unwrap();
                prop_assert_eq!(f16::encode(&decoded).unwrap(), codes);
                for (value, decoded) in values.iter().zip(decoded) {
                    // Half a unit in the last place: 2^-11 of a normal value, 2^-25 of a subnormal one.
                    prop_assert!((value - decoded).abs() <= f32::max(value.abs() / 2048.0, 2_f32.powi(-25)));
                }
            }
            Err(CodecError::Overflow { index, value, encoding: Encoding::F16 }) => {
                prop_assert!(value.to_bits() == values[index].to_bits() && value.abs() >= 65_520.0);
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn int8_of_any_finite_values(
        values in vec(prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO, 0..300),
        block in 1..300_usize,
    ) {
        let block = NonZeroUsize::new(block).unwrap();
        match int8::quantize(&values, block) {
            Ok(blocks) => {
                let decoded = int8::dequantize(&blocks, block).unwrap();
                for (index, (value, decoded)) in values.iter().zip(&decoded).enumerate() {
                    prop_assert!(decoded.is_finite());
                    // Half a scale, and the rounding of f32 in division and product; a subnormal scale is
                    // itself a coarse rounding of absmax/127, by up to half of 2^-149.
                    let scale = f64::from(blocks.scales[index / block.get()]);
                    let bound = scale * 0.501 + 64.0 * 2_f64.powi(-149);
                    let off = (f64::from(*value) - f64::from(*decoded)).abs();
                    prop_assert!(off <= bound, "{value} became {decoded}, at scale {scale}");
                }
            }
            Err(CodecError::Overflow { index, value, encoding: Encoding::Int8 }) => {
                prop_assert!(value.to_bits() == values[index].to_bits() && value.abs() > 3.4e38);
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    /// Against sorting everything.
    #[test]
    fn top_k_sends_the_largest(
        (gradient, residual) in (0..120_usize).prop_flat_map(|n| {
            // Few distinct values, so that there are ties.
            let value = || prop_oneof![(-3..=3_i8).prop_map(f32::from), -1.0..1_f32, Just(-0.0)];
            (vec(value(), n), vec(value(), n))
        }),
        per_mille in 0..1_100_u32,
    ) {
        let total: Vec<f32> = gradient.iter().zip(&residual).map(|(a, b)| a + b).collect();
        let mut order: Vec<usize> = (0..total.len()).collect();
        order.sort_by(|&a, &b| total[b].abs().total_cmp(&total[a].abs()).then(a.cmp(&b)));
        order.truncate(top_k::count(total.len(), per_mille));
        order.sort_unstable();

        let mut rest = residual.clone();
        let selection = top_k::select(&gradient, &mut rest, per_mille).unwrap();
        prop_assert_eq!(selection.indices.iter().map(|&i| i as usize).collect::<Vec<_>>(), order.clone());
        let sent: Vec<f32> = order.iter().map(|&index| total[index]).collect();
        prop_assert_eq!(selection.values, sent);
        // Nothing is lost: what is sent and what is kept add up to the total.
        for (index, total) in total.iter().enumerate() {
            prop_assert_eq!(rest[index], if order.contains(&index) { 0.0 } else { *total });
        }
    }
}

/// The damage strategy reaches every kind, so that the tests above do what they say.
#[test]
fn damage_changes_frames() {
    let mut frame = vec![1, 2, 3, 4];
    let damage = [
        Damage::Set { at: 0, to: 9 },
        Damage::Flip { at: 1, bit: 0 },
        Damage::Insert { at: 2, bytes: vec![7, 7] },
        Damage::Remove { at: 4 },
        Damage::Cut { at: 4 },
    ];
    apply_damage(&mut frame, &damage);
    assert_eq!(frame, [9, 3, 7, 7]);
}
