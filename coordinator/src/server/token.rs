//! Bearer tokens: 256 random bits in hexadecimal.

use std::fmt::Write;

/// A new token from the operating system's generator.
pub(crate) fn random_token() -> String {
    let bytes: [u8; 32] = rand::random();
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Equality in a time that does not depend on where the first difference is.
pub(crate) fn equal(a: &str, b: &str) -> bool {
    blake3::hash(a.as_bytes()) == blake3::hash(b.as_bytes())
}
