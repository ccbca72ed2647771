//! What the header says of a tensor, and whether it makes sense.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::int8;

/// Most dimensions a tensor on the wire can have.
pub const MAX_RANK: usize = 4;

/// Most values in one tensor. 2^24 values fill [`crate::frame::MAX_PAYLOAD`] as f32, and in every other
/// encoding too they decode to no more than that many bytes.
pub const MAX_ELEMENTS: u64 = 1 << 24;

/// How a tensor's values are laid out in the payload. All little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Token ids, 4 bytes each.
    U32,
    /// IEEE binary32, 4 bytes each.
    F32,
    /// IEEE binary16, rounded to nearest even, 2 bytes each.
    F16,
    /// Blocks of 64 values: all scales (f32, absmax/127) first, then one signed byte a value.
    Int8,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Encoding::U32 => "u32",
            Encoding::F32 => "f32",
            Encoding::F16 => "f16",
            Encoding::Int8 => "int8",
        })
    }
}

/// What the payload of a frame holds: n values, n the product of `shape`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorMeta {
    /// How the values are laid out.
    pub encoding: Encoding,
    /// Dimensions, outermost first: 1 to [`MAX_RANK`] of them, of [`MAX_ELEMENTS`] values at most.
    pub shape: Vec<u32>,
    /// Length of the payload in bytes: [`TensorMeta::expected_bytes`].
    pub bytes: u64,
    /// xxh3 (64 bit, seed 0) of the payload.
    pub checksum: u64,
}

/// Why a tensor's description contradicts itself or the limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    /// A shape without dimensions, or of more than [`MAX_RANK`].
    #[error("tensor.shape has {rank} dimensions: give it 1 to {MAX_RANK}")]
    Rank {
        /// Dimensions of the shape.
        rank: usize,
    },
    /// A shape of more than [`MAX_ELEMENTS`] values.
    #[error("tensor.shape {shape:?} asks for too many values: at most {MAX_ELEMENTS} fit in one frame")]
    Elements {
        /// The shape.
        shape: Vec<u32>,
    },
    /// A payload that shape and encoding do not add up to.
    #[error("tensor.bytes is {declared}: {encoding} of shape {shape:?} takes {expected} bytes")]
    Bytes {
        /// The length that was sent, in bytes.
        declared: u64,
        /// The length that follows from the others, in bytes.
        expected: u64,
        /// The encoding.
        encoding: Encoding,
        /// The shape.
        shape: Vec<u32>,
    },
}

impl TensorMeta {
    /// Number of values in `shape`, the product of its dimensions; None if it exceeds a u64.
    /// A dimension of 0 makes it 0, whatever the others are.
    pub fn elements(shape: &[u32]) -> Option<u64> {
        if shape.contains(&0) {
            return Some(0);
        }
        shape.iter().try_fold(1_u64, |product, &dimension| product.checked_mul(u64::from(dimension)))
    }

    /// Length in bytes of a payload of `shape` in `encoding`; None if it exceeds a u64.
    ///
    /// For n values: u32 and f32 4n, f16 2n, int8 n + 4 * ceil(n/64).
    pub fn expected_bytes(encoding: Encoding, shape: &[u32]) -> Option<u64> {
        let elements = Self::elements(shape)?;
        match encoding {
            Encoding::U32 | Encoding::F32 => elements.checked_mul(4),
            Encoding::F16 => elements.checked_mul(2),
            Encoding::Int8 => {
                elements.div_ceil(int8::WIRE_BLOCK.get() as u64).checked_mul(4)?.checked_add(elements)
            }
        }
    }

    /// Holds the description against itself and the limits; gives the number of values.
    ///
    /// # Errors
    /// A rank outside 1..=[`MAX_RANK`], more than [`MAX_ELEMENTS`] values, or `bytes` other than
    /// [`TensorMeta::expected_bytes`].
    pub fn check(&self) -> Result<usize, MetaError> {
        let elements = check_shape(&self.shape)?;
        match Self::expected_bytes(self.encoding, &self.shape) {
            Some(expected) if expected == self.bytes => Ok(elements),
            Some(expected) => Err(MetaError::Bytes {
                declared: self.bytes,
                expected,
                encoding: self.encoding,
                shape: self.shape.clone(),
            }),
            None => Err(MetaError::Elements { shape: self.shape.clone() }),
        }
    }
}

/// The number of values in a shape that may go on the wire.
pub(super) fn check_shape(shape: &[u32]) -> Result<usize, MetaError> {
    // The rank comes first: the other errors quote the shape, which is short from here on.
    if !(1..=MAX_RANK).contains(&shape.len()) {
        return Err(MetaError::Rank { rank: shape.len() });
    }
    match TensorMeta::elements(shape) {
        Some(elements) if elements <= MAX_ELEMENTS => Ok(elements as usize),
        _ => Err(MetaError::Elements { shape: shape.to_vec() }),
    }
}
