//! UTF-8 that arrives in pieces, which may end in the middle of a character.

/// A byte that is no part of UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotUtf8 {
    /// Bytes before it since the last [`Utf8Stream::end`].
    pub(super) at: u64,
}

/// Checks pieces one after the other; holds at most one unfinished character.
#[derive(Debug, Default)]
pub(super) struct Utf8Stream {
    /// Of a character that began in the piece before; the first `held` bytes count.
    half: [u8; 4],
    held: usize,
    /// Bytes seen, those held included.
    seen: u64,
}

impl Utf8Stream {
    /// The text of a piece: first the character that the piece before had begun, then the rest as far as it is whole.
    pub(super) fn push<'a>(&mut self, mut piece: &'a [u8]) -> Result<(Option<char>, &'a str), NotUtf8> {
        let mut mended = None;
        while self.held > 0 && mended.is_none() {
            let Some((first, rest)) = piece.split_first() else { return Ok((None, "")) };
            self.half[self.held] = *first;
            let begin = self.seen - self.held as u64;
            (self.held, self.seen, piece) = (self.held + 1, self.seen + 1, rest);
            match std::str::from_utf8(&self.half[..self.held]) {
                Ok(text) => (mended, self.held) = (text.chars().next(), 0),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(NotUtf8 { at: begin }),
            }
        }
        let whole = match std::str::from_utf8(piece) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() => {
                // What is left is the beginning of a character, at most three bytes.
                let (whole, half) = piece.split_at(error.valid_up_to());
                self.half[..half.len()].copy_from_slice(half);
                self.held = half.len();
                std::str::from_utf8(whole).unwrap_or_default()
            }
            Err(error) => return Err(NotUtf8 { at: self.seen + error.valid_up_to() as u64 }),
        };
        self.seen += piece.len() as u64;
        Ok((mended, whole))
    }

    /// No piece follows; the next one begins another text.
    pub(super) fn end(&mut self) -> Result<(), NotUtf8> {
        let Self { held, seen, .. } = std::mem::take(self);
        if held > 0 { Err(NotUtf8 { at: seen - held as u64 }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text of bytes cut into pieces of this size, or where it is none.
    fn read(bytes: &[u8], size: usize) -> Result<String, u64> {
        let mut stream = Utf8Stream::default();
        let mut text = String::new();
        for piece in bytes.chunks(size) {
            let (mended, rest) = stream.push(piece).map_err(|e| e.at)?;
            text.extend(mended);
            text.push_str(rest);
        }
        stream.end().map_err(|e| e.at)?;
        Ok(text)
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(text in any::<String>(), size in 1usize..6) {
            prop_assert_eq!(read(text.as_bytes(), size), Ok(text));
        }

        #[test]
        fn faults_are_found_where_they_are(
            text in any::<String>(),
            noise in proptest::collection::vec(any::<u8>(), 0..6),
            size in 1usize..6,
        ) {
            let bytes = [text.as_bytes(), &noise].concat();
            let whole = std::str::from_utf8(&bytes).map(str::to_owned).map_err(|e| e.valid_up_to() as u64);
            prop_assert_eq!(read(&bytes, size), whole);
        }
    }
}
