//! A text's tokens as text: whole characters, and nothing of what may become a stop.

use crate::data::tokenizer::{Tokenizer, TokenizerError};

/// What has been written of one text and not told yet.
#[derive(Debug)]
pub(crate) struct Pieces {
    stops: Vec<String>,
    /// The beginning of a character.
    bytes: Vec<u8>,
    /// What may be the beginning of a stop.
    text: String,
    stopped: bool,
}

impl Pieces {
    /// A text that ends before the first of these.
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self { stops, bytes: Vec::new(), text: String::new(), stopped: false }
    }

    /// Whether a stop has come: nothing comes after it.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes a token in; gives the text that can be told by now.
    ///
    /// # Errors
    /// A token that the tokenizer does not have.
    pub(crate) fn add(&mut self, id: u32, tokenizer: &Tokenizer) -> Result<String, TokenizerError> {
        self.bytes.extend(tokenizer.decode(&[id])?);
        self.read_characters(false);
        Ok(self.tell(false))
    }

    /// What was held back, once nothing more comes.
    pub(crate) fn rest(&mut self) -> String {
        self.read_characters(true);
        self.tell(true)
    }

    /// Moves what is whole from the bytes to the text; what is no character becomes U+FFFD.
    fn read_characters(&mut self, is_last: bool) {
        loop {
            let (whole, broken) = match std::str::from_utf8(&self.bytes) {
                Ok(text) => (text.len(), 0),
                Err(error) => {
                    let rest = self.bytes.len() - error.valid_up_to();
                    (error.valid_up_to(), error.error_len().unwrap_or(if is_last { rest } else { 0 }))
                }
            };
            self.text.push_str(&String::from_utf8_lossy(&self.bytes[..whole]));
            self.bytes.drain(..whole + broken);
            if broken == 0 {
                return;
            }
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn tell(&mut self, is_last: bool) -> String {
        if self.stopped {
            return String::new();
        }
        if let Some(end) = self.stops.iter().filter_map(|stop| self.text.find(stop.as_str())).min() {
            self.stopped = true;
            self.text.truncate(end);
            return std::mem::take(&mut self.text);
        }
        let held = if is_last { 0 } else { self.may_become_a_stop(&self.text) };
        let rest = self.text.split_off(self.text.len() - held);
        std::mem::replace(&mut self.text, rest)
    }

    /// Bytes at the end that are the beginning of a stop.
    fn may_become_a_stop(&self, text: &str) -> usize {
        let beginning = |stop: &String| {
            (1..stop.len().min(text.len() + 1))
                .rev()
                .find(|length| stop.is_char_boundary(*length) && text.ends_with(&stop[..*length]))
        };
        self.stops.iter().filter_map(beginning).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// All that is told of a text, piece by piece.
    fn told(text: &str, stops: &[&str]) -> (Vec<String>, bool) {
        let tokenizer = Tokenizer::bytes();
        let mut pieces = Pieces::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut told: Vec<String> = tokenizer
            .encode(text)
            .unwrap()
            .into_iter()
            .map(|id| pieces.add(id, &tokenizer).unwrap())
            .collect();
        told.push(pieces.rest());
        (told, pieces.stopped())
    }

    #[test]
    fn characters_are_told_whole() {
        let (pieces, _) = told("aä€", &[]);
        assert_eq!(pieces, ["a", "", "ä", "", "", "€", ""]);
    }

    #[test]
    fn a_stop_ends_the_text_and_no_part_of_it_is_told() {
        let (pieces, stopped) = told("one\n\ntwo", &["\n\n"]);
        assert_eq!(
            (pieces, stopped),
            (["o", "n", "e", "", "", "", "", "", ""].map(String::from).to_vec(), true)
        );
        let (pieces, stopped) = told("one\ntwo", &["\n\n"]);
        assert_eq!((pieces.concat().as_str(), stopped), ("one\ntwo", false));
        let (pieces, stopped) = told("ends with a half\n", &["\n\n"]);
        assert_eq!((pieces.concat().as_str(), stopped), ("ends with a half\n", false));
    }

    proptest! {
        /// However the text is cut: what is told is the text up to the first stop.
        #[test]
        fn nothing_is_lost_or_told_too_much(text in "[abä ]{0,40}", stops in vec("[abä]{1,3}", 0..3)) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (pieces, stopped) = told(&text, &stops);
            let end = stops.iter().filter_map(|stop| text.find(stop)).min();
            // Of two stops the one that is whole first counts, as in a text that is read while it is written.
            let by_end = stops.iter().filter_map(|stop| text.find(stop).map(|at| (at + stop.len(), at))).min();
            prop_assert_eq!(stopped, end.is_some());
            let expected = by_end.map_or(text.as_str(), |(whole, _)| {
                let seen = &text[..whole];
                let at = stops.iter().filter_map(|stop| seen.find(stop)).min().unwrap_or(whole);
                &text[..at]
            });
            prop_assert_eq!(pieces.concat(), expected);
        }
    }
}
