//! Content-addressed blobs: weights, snapshots and deltas travel over HTTP, named by their hash.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Size of the pieces in which blobs are sent, in bytes.
pub const CHUNK: u64 = 4 << 20;

/// BLAKE3 hash of a blob's bytes. As text, 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobHash(pub [u8; 32]);

impl BlobHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a blob hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a blob is named by 64 lower-case hexadecimal digits, its BLAKE3 hash")]
pub struct NotABlobHash;

impl std::str::FromStr for BlobHash {
    type Err = NotABlobHash;

    fn from_str(text: &str) -> Result<Self, NotABlobHash> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(NotABlobHash);
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(NotABlobHash),
        };
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Ok(Self(hash))
    }
}

/// A blob's name with its length, which a receiver can prepare for and check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobRef {
    /// The name.
    pub hash: BlobHash,
    /// Length in bytes.
    pub bytes: u64,
}

impl BlobRef {
    /// Refers to these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { hash: BlobHash::of(bytes), bytes: bytes.len() as u64 }
    }
}
