//! Ranges of bytes in HTTP's headers: what a download asks for, and where a piece of an upload belongs.

use std::ops::Range;

/// Where a piece belongs in a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Its first byte.
    pub first: u64,
    /// Bytes of the whole blob.
    pub total: u64,
}

/// The bytes that a `Range` asks for of a blob of `length` bytes: `bytes=FIRST-LAST` or `bytes=FIRST-`. None where the
/// blob has none of them.
pub fn requested(text: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let first = number(first)?;
    let end = match last {
        "" => length,
        last => number(last)?.saturating_add(1).min(length),
    };
    (first < end).then_some(first..end)
}

/// Where a `Content-Range` puts a piece of `length` bytes: `bytes FIRST-LAST/TOTAL`. None where it contradicts itself or
/// the length.
pub fn sent(text: &str, length: u64) -> Option<Piece> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total) = (number(first)?, number(last)?, number(total)?);
    (last.checked_sub(first)?.checked_add(1)? == length && last < total).then_some(Piece { first, total })
}

/// Digits alone: Rust would also take a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_are_read_as_http_says() {
        assert_eq!(requested("bytes=0-3", 10), Some(0..4));
        assert_eq!(requested("bytes=4-", 10), Some(4..10));
        assert_eq!(requested("bytes=4-99", 10), Some(4..10));
        assert_eq!(requested("bytes=4-18446744073709551615", 10), Some(4..10));
        assert_eq!(requested("bytes=10-", 10), None);
        assert_eq!(requested("bytes=5-2", 10), None);
        assert_eq!(requested("bytes=+1-2", 10), None);
        assert_eq!(requested("items=0-1", 10), None);
    }

    #[test]
    fn pieces_fit_their_blob_and_their_own_length() {
        assert_eq!(sent("bytes 4-9/10", 6), Some(Piece { first: 4, total: 10 }));
        for (text, length) in [
            ("bytes 4-9/10", 5),
            ("bytes 4-9/9", 6),
            ("bytes 4-3/10", 0),
            ("bytes 4-+9/10", 6),
            ("4-9/10", 6),
        ] {
            assert_eq!(sent(text, length), None, "{text}");
        }
    }
}
