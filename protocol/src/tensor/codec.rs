//! Payloads from values and values from payloads.

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Encoding, MetaError, TensorMeta, f16,
    int8::{self, Blocks, WIRE_BLOCK},
    meta::check_shape,
};

/// Why values cannot be encoded, or a payload cannot be decoded.
///
/// An index counts values of the flattened, row-major tensor from 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CodecError {
    /// The description contradicts itself or the limits.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The shape is not that of the values.
    #[error("tensor.shape {shape:?} does not hold {values} values: give the shape of the values")]
    Shape {
        /// The shape.
        shape: Vec<u32>,
        /// Number of values given.
        values: usize,
    },
    /// Floats as token ids, or token ids as floats.
    #[error("tensor.encoding is {encoding}, which does not carry {wanted}: use {fix}")]
    Encoding {
        /// The encoding.
        encoding: Encoding,
        /// What it was to carry: floats or token ids.
        wanted: &'static str,
        /// The encodings that do.
        fix: &'static str,
    },
    /// The payload is not as long as its description says.
    #[error("the payload is {actual} bytes long, tensor.bytes says {declared}: send it again")]
    Length {
        /// In the description, in bytes.
        declared: u64,
        /// Of the payload, in bytes.
        actual: u64,
    },
    /// The payload was changed on its way.
    #[error("the payload's xxh3 is {actual:016x}, tensor.checksum says {declared:016x}: send it again")]
    Checksum {
        /// In the description.
        declared: u64,
        /// Of the payload.
        actual: u64,
    },
    /// NaN or infinity.
    #[error("value {index} is {value}: only finite values may be sent")]
    NotFinite {
        /// The first such value.
        index: usize,
        /// What it is.
        value: f32,
    },
    /// A finite value that the encoding would turn into infinity.
    #[error("value {index}, {value}, overflows {encoding}: send the tensor as f32")]
    Overflow {
        /// The first such value.
        index: usize,
        /// What it is.
        value: f32,
        /// The encoding.
        encoding: Encoding,
    },
    /// A scale that [`int8::quantize`] does not make.
    #[error("scale {block} is {scale}: an int8 scale is finite, not negative, and finite times 127")]
    Scale {
        /// Number of the block, from 0.
        block: usize,
        /// Its scale.
        scale: f32,
    },
    /// A byte that [`int8::quantize`] does not make.
    #[error("value {index} is the byte -128: int8 values lie in -127..=127")]
    Quantum {
        /// The first such value.
        index: usize,
    },
    /// Too many or too few scales.
    #[error("there are {scales} scales for {values} int8 values: one is needed per block of {block}")]
    Scales {
        /// How many there are.
        scales: usize,
        /// Number of values.
        values: usize,
        /// Values in a block.
        block: usize,
    },
    /// A residual that is not one of this gradient.
    #[error(
        "the residual has {residual} values, the gradient {gradient}: both must have the tensor's length"
    )]
    Residual {
        /// Values in the residual.
        residual: usize,
        /// Values in the gradient.
        gradient: usize,
    },
}

/// Encodes row-major `values` of `shape` as `encoding`, and describes the payload.
///
/// f32 keeps the bits; f16 rounds to nearest even; int8 is lossy by up to half a scale per value, in
/// blocks of [`WIRE_BLOCK`] (see [`int8::quantize`]).
///
/// # Errors
/// A shape that is not that of the values or exceeds the limits of [`TensorMeta::check`], the encoding
/// u32, NaN or infinity among the values, or a finite value that the encoding would turn into infinity.
pub fn encode_floats(
    values: &[f32],
    shape: &[u32],
    encoding: Encoding,
) -> Result<(TensorMeta, Vec<u8>), CodecError> {
    check_count(values.len(), shape)?;
    let payload = match encoding {
        Encoding::U32 => {
            return Err(CodecError::Encoding { encoding, wanted: "floats", fix: "f32, f16 or int8" });
        }
        Encoding::F32 => {
            check_finite(values)?;
            values.iter().map(|value| value.to_le_bytes()).collect::<Vec<_>>().into_flattened()
        }
        Encoding::F16 => {
            f16::encode(values)?.into_iter().map(u16::to_le_bytes).collect::<Vec<_>>().into_flattened()
        }
        Encoding::Int8 => {
            let Blocks { scales, quanta } = int8::quantize(values, WIRE_BLOCK)?;
            let mut payload = Vec::with_capacity(scales.len() * 4 + quanta.len());
            payload.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
            payload.extend(quanta.iter().map(|&quantum| quantum as u8));
            payload
        }
    };
    Ok((describe(encoding, shape, &payload), payload))
}

/// Decodes a payload of floats to as many values as `meta.shape` has, row-major and all finite.
///
/// # Errors
/// A `meta` that fails [`TensorMeta::check`], the encoding u32, a payload of another length or checksum,
/// or one that holds NaN, infinity, or an int8 block no encoder makes.
pub fn decode_floats(meta: &TensorMeta, payload: &[u8]) -> Result<Vec<f32>, CodecError> {
    let elements = check_payload(meta, payload)?;
    match meta.encoding {
        Encoding::U32 => {
            Err(CodecError::Encoding { encoding: meta.encoding, wanted: "floats", fix: "f32, f16 or int8" })
        }
        Encoding::F32 => {
            let values: Vec<f32> = words(payload).map(f32::from_le_bytes).collect();
            check_finite(&values)?;
            Ok(values)
        }
        Encoding::F16 => {
            let (codes, _) = payload.as_chunks::<2>();
            f16::decode(&codes.iter().map(|&bytes| u16::from_le_bytes(bytes)).collect::<Vec<_>>())
        }
        Encoding::Int8 => {
            let (scales, quanta) = payload.split_at(payload.len() - elements);
            let scales = words(scales).map(f32::from_le_bytes).collect();
            let quanta = quanta.iter().map(|&byte| byte as i8).collect();
            int8::dequantize(&Blocks { scales, quanta }, WIRE_BLOCK)
        }
    }
}

/// Encodes row-major token ids of `shape`, and describes the payload.
///
/// # Errors
/// A shape that is not that of the ids or exceeds the limits of [`TensorMeta::check`].
pub fn encode_tokens(ids: &[u32], shape: &[u32]) -> Result<(TensorMeta, Vec<u8>), CodecError> {
    check_count(ids.len(), shape)?;
    let payload = ids.iter().map(|id| id.to_le_bytes()).collect::<Vec<_>>().into_flattened();
    Ok((describe(Encoding::U32, shape, &payload), payload))
}

/// Decodes as many token ids as `meta.shape` has, row-major. Whether they lie in the vocabulary is for the receiver to check.
///
/// # Errors
/// A `meta` that fails [`TensorMeta::check`], another encoding than u32, or a payload of another length
/// or checksum.
pub fn decode_tokens(meta: &TensorMeta, payload: &[u8]) -> Result<Vec<u32>, CodecError> {
    check_payload(meta, payload)?;
    match meta.encoding {
        Encoding::U32 => Ok(words(payload).map(u32::from_le_bytes).collect()),
        encoding => Err(CodecError::Encoding { encoding, wanted: "token ids", fix: "u32" }),
    }
}

/// Holds a payload against its description without decoding it: length and checksum.
///
/// # Errors
/// A `meta` that fails [`TensorMeta::check`], or a payload of another length or checksum.
pub fn verify(meta: &TensorMeta, payload: &[u8]) -> Result<(), CodecError> {
    check_payload(meta, payload).map(|_| ())
}

/// Errs on the first NaN or infinity.
pub(crate) fn check_finite(values: &[f32]) -> Result<(), CodecError> {
    // Without an early exit the compiler makes vector instructions of this; failures are rare.
    if values.iter().fold(true, |all, value| all & value.is_finite()) {
        return Ok(());
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(CodecError::NotFinite { index, value: values[index] }),
        None => Ok(()),
    }
}

fn check_count(values: usize, shape: &[u32]) -> Result<(), CodecError> {
    if check_shape(shape)? == values {
        Ok(())
    } else {
        Err(CodecError::Shape { shape: shape.to_vec(), values })
    }
}

/// Checks description, length and checksum; gives the number of values.
fn check_payload(meta: &TensorMeta, payload: &[u8]) -> Result<usize, CodecError> {
    let elements = meta.check()?;
    let actual = payload.len() as u64;
    if actual != meta.bytes {
        return Err(CodecError::Length { declared: meta.bytes, actual });
    }
    let actual = xxh3_64(payload);
    if actual != meta.checksum {
        return Err(CodecError::Checksum { declared: meta.checksum, actual });
    }
    Ok(elements)
}

fn describe(encoding: Encoding, shape: &[u32], payload: &[u8]) -> TensorMeta {
    TensorMeta { encoding, shape: shape.to_vec(), bytes: payload.len() as u64, checksum: xxh3_64(payload) }
}

fn words(bytes: &[u8]) -> impl ExactSizeIterator<Item = [u8; 4]> {
    bytes.as_chunks::<4>().0.iter().copied()
}
