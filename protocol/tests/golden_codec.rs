//! The codecs against golden vectors, bit for bit.
//!
//! Reads `codec.json` and `codec.safetensors` in the folder named by the environment variable
//! COHORT_GOLDEN, by default the repository's own copy. Names, lengths and block sizes come from there.

#![allow(clippy::unwrap_used)]

use std::{env, fs, num::NonZeroUsize, path::PathBuf};

use protocol::tensor::{CodecError, Encoding, TensorMeta, decode_floats, encode_floats, f16, int8, top_k};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use sha2::{Digest, Sha256};

struct Golden {
    json: Value,
    tensors: Vec<u8>,
}

impl Golden {
    fn load() -> Self {
        let folder =
            env::var_os("COHORT_GOLDEN").map_or_else(|| PathBuf::from("../tests/golden"), PathBuf::from);
        let read = |name| fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self {
            json: serde_json::from_slice(&read("codec.json")).unwrap(),
            tensors: read("codec.safetensors"),
        }
    }

    fn tensor<const N: usize>(&self, name: &str, dtype: Dtype) -> Vec<[u8; N]> {
        let tensors = SafeTensors::deserialize(&self.tensors).unwrap();
        let tensor = tensors.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(tensor.dtype(), dtype, "{name}");
        let (elements, rest) = tensor.data().as_chunks::<N>();
        assert!(rest.is_empty());
        elements.to_vec()
    }

    fn f32(&self, name: &str) -> Vec<f32> {
        self.tensor(name, Dtype::F32).into_iter().map(f32::from_le_bytes).collect()
    }

    fn u32(&self, name: &str) -> Vec<u32> {
        self.tensor(name, Dtype::I32).into_iter().map(u32::from_le_bytes).collect()
    }

    fn u16(&self, name: &str) -> Vec<u16> {
        self.tensor(name, Dtype::F16).into_iter().map(u16::from_le_bytes).collect()
    }

    fn i8(&self, name: &str) -> Vec<i8> {
        self.tensor::<1>(name, Dtype::I8).into_iter().map(|[byte]| byte as i8).collect()
    }

    /// The objects of a list, of which there must be some.
    fn list(&self, pointer: &str) -> Vec<&Value> {
        let list =
            self.json.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("{pointer}"));
        assert!(!list.is_empty(), "{pointer}");
        list.iter().collect()
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key}"))
}

fn number(value: &Value, key: &str) -> usize {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}")) as usize
}

fn hex(digits: &Value) -> u32 {
    u32::from_str_radix(digits.as_str().unwrap(), 16).unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Encodes for the wire and back.
fn over_the_wire(values: &[f32], encoding: Encoding) -> (TensorMeta, Vec<u8>, Vec<f32>) {
    let (meta, payload) = encode_floats(values, &[values.len() as u32], encoding).unwrap();
    let decoded = decode_floats(&meta, &payload).unwrap();
    (meta, payload, decoded)
}

#[test]
fn f16_tensor() {
    let golden = Golden::load();
    let (x, y) = (golden.f32("f16.x"), golden.u16("f16.y"));
    assert!(!x.is_empty());
    assert_eq!(f16::encode(&x).unwrap(), y);

    let (meta, payload, decoded) = over_the_wire(&x, Encoding::F16);
    assert_eq!(meta.bytes, 2 * x.len() as u64);
    assert_eq!(payload, y.iter().flat_map(|code| code.to_le_bytes()).collect::<Vec<_>>());
    assert_eq!(bits(&decoded), bits(&f16::decode(&y).unwrap()));
}

#[test]
fn f16_edges() {
    let golden = Golden::load();
    for edge in golden.list("/f16/edges") {
        let value = f32::from_bits(hex(&edge["f32_bits"]));
        let code = hex(&edge["f16_bits"]) as u16;
        // Vectorised conversions have a tail: the edge must hold in every place.
        for length in [1, 3, 8, 17] {
            for at in 0..length {
                let mut values = vec![1.0; length];
                values[at] = value;
                let encoded = f16::encode(&values);
                if edge["overflows"].as_bool().unwrap() {
                    let refused = CodecError::Overflow { index: at, value, encoding: Encoding::F16 };
                    assert_eq!(encoded, Err(refused), "{edge}");
                    assert!(f16::decode(&[code]).is_err(), "{edge}");
                } else {
                    assert_eq!(encoded.unwrap()[at], code, "{edge}");
                }
            }
        }
    }
}

#[test]
fn f16_decodes_all_finite_codes() {
    let golden = Golden::load();
    let expected = &golden.json["f16"]["decode_all_finite"];
    let (finite, other): (Vec<u16>, Vec<u16>) = (0..=u16::MAX).partition(|code| code & 0x7c00 != 0x7c00);
    assert_eq!(finite.len(), number(expected, "count"));

    let decoded = f16::decode(&finite).unwrap();
    let bytes: Vec<u8> = decoded.iter().flat_map(|value| value.to_le_bytes()).collect();
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hash, text(expected, "sha256"));

    assert_eq!(f16::encode(&decoded).unwrap(), finite);
    for code in other {
        assert!(matches!(f16::decode(&[code]), Err(CodecError::NotFinite { index: 0, .. })), "{code:04x}");
    }
}

#[test]
fn int8_tensors() {
    let golden = Golden::load();
    let mut on_the_wire = 0;
    for case in golden.list("/int8") {
        let (name, block, length) = (text(case, "name"), number(case, "block"), number(case, "length"));
        let block = NonZeroUsize::new(block).unwrap();
        let prefix = format!("int8.{name}.b{block}");
        let (x, expected, y) = if length == 0 {
            Default::default()
        } else {
            let expected = int8::Blocks {
                scales: golden.f32(&format!("{prefix}.scale")),
                quanta: golden.i8(&format!("{prefix}.q")),
            };
            (golden.f32(&format!("int8.{name}.x")), expected, golden.f32(&format!("{prefix}.y")))
        };
        assert_eq!(x.len(), length, "{prefix}");

        let blocks = int8::quantize(&x, block).unwrap();
        assert_eq!(blocks.quanta, expected.quanta, "{prefix}");
        assert_eq!(bits(&blocks.scales), bits(&expected.scales), "{prefix}");
        assert_eq!(blocks.scales.len(), number(case, "blocks"), "{prefix}");
        let zeros = blocks.scales.iter().filter(|scale| **scale == 0.0).count();
        assert_eq!(zeros, number(case, "zero_scale_blocks"), "{prefix}");

        let decoded = int8::dequantize(&blocks, block).unwrap();
        assert_eq!(bits(&decoded), bits(&y), "{prefix}");
        let error = x.iter().zip(&y).map(|(x, y)| (f64::from(*x) - f64::from(*y)).abs()).fold(0.0, f64::max);
        assert_eq!(error, case["max_abs_error"].as_f64().unwrap(), "{prefix}");

        if block == int8::WIRE_BLOCK {
            on_the_wire += 1;
            let (_, payload, decoded) = over_the_wire(&x, Encoding::Int8);
            let scales = expected.scales.iter().flat_map(|scale| scale.to_le_bytes());
            let layout: Vec<u8> = scales.chain(expected.quanta.iter().map(|&q| q as u8)).collect();
            assert_eq!(payload, layout, "{prefix}");
            assert_eq!(bits(&decoded), bits(&y), "{prefix}");
        }
    }
    assert!(on_the_wire > 0, "no case has the wire's block size");
}

#[test]
fn top_k_rounds() {
    let golden = Golden::load();
    let per_mille = number(&golden.json["topk"], "per_mille") as u32;
    for case in golden.list("/topk/cases") {
        let (name, length, k) = (text(case, "name"), number(case, "length"), number(case, "k"));
        assert_eq!(top_k::count(length, per_mille), k, "{name}");
        let mut residual = vec![0.0; length];
        if length == 0 {
            assert_eq!(top_k::select(&[], &mut residual, per_mille).unwrap(), top_k::Selection::default());
            continue;
        }
        for round in 0..number(case, "rounds") {
            let part = |part: &str| format!("topk.{name}.{round}.{part}");
            let selection = top_k::select(&golden.f32(&part("gradient")), &mut residual, per_mille).unwrap();
            assert_eq!(selection.indices, golden.u32(&part("index")), "{name} {round}");
            assert_eq!(bits(&selection.values), bits(&golden.f32(&part("value"))), "{name} {round}");
            assert_eq!(bits(&residual), bits(&golden.f32(&part("residual"))), "{name} {round}");
        }
    }
}

#[test]
fn every_encoder_rejects_what_is_not_finite() {
    let golden = Golden::load();
    for case in golden.list("/must_reject") {
        let bits: Vec<u32> = case["f32_bits"].as_array().unwrap().iter().map(hex).collect();
        let values: Vec<f32> = bits.iter().copied().map(f32::from_bits).collect();
        let first = values.iter().position(|value| !value.is_finite()).unwrap();
        let refused = |error: CodecError| match error {
            // By the bits, as NaN differs from itself.
            CodecError::NotFinite { index, value } => {
                assert_eq!((index, value.to_bits()), (first, bits[first]));
            }
            other => panic!("{case}: {other}"),
        };
        let shape = [values.len() as u32];
        for encoding in [Encoding::F32, Encoding::F16, Encoding::Int8] {
            refused(encode_floats(&values, &shape, encoding).unwrap_err());
        }
        refused(f16::encode(&values).unwrap_err());
        for block in [1, 64, 256] {
            refused(int8::quantize(&values, NonZeroUsize::new(block).unwrap()).unwrap_err());
        }
        let mut residual = vec![0.0; values.len()];
        let error = top_k::select(&values, &mut residual, 1000).unwrap_err();
        assert!(matches!(error, CodecError::NotFinite { index, .. } if index == first), "{case}: {error}");
        assert!(residual.iter().all(|rest| *rest == 0.0), "a refused gradient leaves the residual alone");
    }
}
