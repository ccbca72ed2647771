//! The ranges of blobs in HTTP's headers: of a download, and of a piece of an upload.

use coordinator::ranges;

/// The first eight bytes are the length of the blob or of the piece, the rest is the header's text.
///
/// # Panics
/// When something is not as it must be.
pub fn check(bytes: &[u8]) -> bool {
    let Some((length, text)) = bytes.split_first_chunk() else { return false };
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let length = u64::from_le_bytes(*length);
    downloaded(text, length) | uploaded(text, length)
}

fn downloaded(text: &str, length: u64) -> bool {
    let Some(range) = ranges::requested(text, length) else { return false };
    assert!(range.start < range.end && range.end <= length, "{text:?} of {length} is {range:?}");
    let written = format!("bytes={}-{}", range.start, range.end - 1);
    assert_eq!(ranges::requested(&written, length), Some(range.clone()));
    only_digits(text, "bytes=", &["-"]);
    true
}

fn uploaded(text: &str, length: u64) -> bool {
    let Some(piece) = ranges::sent(text, length) else { return false };
    let end = piece.first.checked_add(length).expect("a piece ends before the largest number");
    assert!(length > 0 && end <= piece.total, "{text:?} of {length} is {piece:?}");
    let written = format!("bytes {}-{}/{}", piece.first, end - 1, piece.total);
    assert_eq!(ranges::sent(&written, length), Some(piece));
    only_digits(text, "bytes ", &["-", "/"]);
    true
}

/// HTTP writes numbers in digits alone: no sign, no space.
fn only_digits(text: &str, unit: &str, between: &[&str]) {
    let numbers = text.strip_prefix(unit).expect("the unit is bytes");
    let rest: String = numbers.chars().filter(|c| !c.is_ascii_digit()).collect();
    assert_eq!(rest, between.concat(), "{text:?}");
}
