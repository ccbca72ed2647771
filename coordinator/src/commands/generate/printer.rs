//! A text as it comes, token by token.

use std::io::Write;

use crate::data::tokenizer::Tokenizer;

/// Writes tokens as far as their characters are whole: one may take several tokens.
pub(super) struct Printer<'a, W> {
    tokenizer: &'a Tokenizer,
    out: &'a mut W,
    /// The beginning of a character.
    held: Vec<u8>,
    failed: Option<anyhow::Error>,
}

impl<'a, W: Write> Printer<'a, W> {
    pub(super) fn new(tokenizer: &'a Tokenizer, out: &'a mut W) -> Self {
        Printer { tokenizer, out, held: Vec::new(), failed: None }
    }

    /// Writes what the tokens make whole. False when it cannot be written: then [`Printer::end`] says why.
    pub(super) fn tokens(&mut self, ids: &[u32]) -> bool {
        if let Err(error) = self.try_tokens(ids) {
            self.failed = Some(error);
        }
        self.failed.is_none()
    }

    fn try_tokens(&mut self, ids: &[u32]) -> anyhow::Result<()> {
        self.held.extend(self.tokenizer.decode(ids)?);
        let whole = match std::str::from_utf8(&self.held) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            // What is no UTF-8 does not become so by what follows.
            _ => self.held.len(),
        };
        self.out.write_all(&self.held[..whole])?;
        self.out.flush()?;
        self.held.drain(..whole);
        Ok(())
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// What could not be written before or now.
    pub(super) fn end(self) -> anyhow::Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.out.write_all(&self.held)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_written_when_they_are_whole() {
        let (tokenizer, mut out) = (Tokenizer::bytes(), Vec::new());
        let mut printer = Printer::new(&tokenizer, &mut out);
        for (bytes, length) in [(&[0x61, 0xc3][..], 1), (&[0xa9], 3), (&[0xff], 4), (&[0xe6, 0x97], 4)] {
            assert!(printer.tokens(bytes));
            assert_eq!(printer.out.len(), length);
        }
        printer.end().unwrap();
        assert_eq!(out, [0x61, 0xc3, 0xa9, 0xff, 0xe6, 0x97]);
    }

    #[test]
    fn an_impossible_token_ends_it() {
        let (tokenizer, mut out) = (Tokenizer::bytes(), Vec::new());
        let mut printer = Printer::new(&tokenizer, &mut out);
        assert!(!printer.tokens(&[256]));
        assert!(printer.end().is_err());
    }
}
