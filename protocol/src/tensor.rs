//! Tensors on the wire: what the header says of the payload.

use serde::{Deserialize, Serialize};

/// How a tensor's values are laid out in the payload. All little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Token ids, 4 bytes each.
    U32,
    F32,
    /// IEEE binary16, rounded to nearest even.
    F16,
    /// Blocks of 64 values: all scales (f32, absmax/127) first, then one signed byte a value.
    Int8,
}

/// What the payload holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorMeta {
    pub encoding: Encoding,
    pub shape: Vec<u32>,
    /// Length of the payload in bytes.
    pub bytes: u64,
    /// xxh3 (64 bit, seed 0) of the payload.
    pub checksum: u64,
}
