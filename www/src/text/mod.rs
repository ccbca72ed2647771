//! Every word that a person reads, by topic. Another language is another folder like this one.
//!
//! What differs between pipeline mode and block mode is behind one trait, [`mode::ModeText`], which is chosen once from
//! the run's [`Mode`](crate::state::mode::Mode).

pub(crate) mod activity;
pub(crate) mod block;
mod block_mode;
pub(crate) mod chart;
pub(crate) mod device;
pub(crate) mod figures;
pub(crate) mod mode;
mod modes;
pub(crate) mod numbers;
pub(crate) mod organizer;
pub(crate) mod pages;
pub(crate) mod pipeline;
pub(crate) mod playground;
pub(crate) mod round;
pub(crate) mod run;
pub(crate) mod scores;
mod serve_mode;
pub(crate) mod volunteer;
pub(crate) mod worker;

/// How a state feels; the style sheet has a colour for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Calm,
    Busy,
    Good,
    Warn,
    Bad,
}

impl Tone {
    /// Key in the style sheet.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tone::Calm => "calm",
            Tone::Busy => "busy",
            Tone::Good => "good",
            Tone::Warn => "warn",
            Tone::Bad => "bad",
        }
    }
}

/// A state for a person: what is the case, and what that means for them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Words {
    pub(crate) tone: Tone,
    /// A few words, for a heading, the tab's title and the table.
    pub(crate) title: String,
    /// A sentence or two.
    pub(crate) detail: String,
}

fn say(tone: Tone, title: &str, detail: impl Into<String>) -> Words {
    Words { tone, title: title.to_owned(), detail: detail.into() }
}

/// Most characters of a volunteer's text that are shown in one place.
const LONGEST: usize = 64;

/// A text that somebody else wrote, safe to show: one line, bounded, without characters that change the direction of
/// what follows.
pub(crate) fn bounded(text: &str) -> String {
    let steers =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut letters = text.chars().filter(|c| !c.is_control() && !steers(*c));
    let mut short: String = letters.by_ref().take(LONGEST).collect();
    if letters.next().is_some() {
        short.pop();
        short.push('…');
    }
    short
}

/// With a capital at the start and a full stop at the end; other programs' words often lack them.
pub(crate) fn sentence(words: &str) -> String {
    let words = words.trim();
    let end = if words.is_empty() || words.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{end}", capital(words))
}

/// With a capital at the start.
pub(crate) fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_words_become_sentences() {
        assert_eq!(sentence("the run is over"), "The run is over.");
        assert_eq!(sentence(" Wait! "), "Wait!");
        assert_eq!(sentence(""), "");
    }

    #[test]
    fn texts_of_volunteers_are_bounded() {
        assert_eq!(bounded("Ada"), "Ada");
        assert_eq!(bounded("a\nb\u{202e}c"), "abc");
        let long = bounded(&"w".repeat(1000));
        assert_eq!(long.chars().count(), 64);
        assert!(long.ends_with('…'));
        assert_eq!(bounded(&"w".repeat(64)), "w".repeat(64));
    }
}
