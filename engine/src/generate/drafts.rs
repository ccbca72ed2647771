//! Drafts by looking up: what followed the last words when they stood in the text before.
//!
//! Prompt look-up decoding, a form of speculative decoding without a second model. Drafts cost nothing to make, and
//! one traversal verifies them all.

/// Longest run of tokens that is looked up, and shortest.
const LONGEST: usize = 4;
const SHORTEST: usize = 2;

/// `count` tokens that followed the latest earlier occurrence of the text's last tokens, of as many of them as occur;
/// after the text's end the draft goes on with itself, as what repeats itself does. Nothing if they never stood
/// together before.
pub(super) fn look_up(text: &[u32], count: usize) -> Vec<u32> {
    for len in (SHORTEST..=LONGEST).rev() {
        let Some(start) = text.len().checked_sub(len) else { continue };
        let (before, last) = (&text[..text.len() - 1], &text[start..]);
        let found = before.windows(len).rposition(|window| window == last);
        if let Some(at) = found.map(|at| at + len) {
            return text[at..].iter().copied().cycle().take(count).collect();
        }
    }
    vec![]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_last_tokens_is_the_draft() {
        let text = [1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3, 9];
        assert_eq!(look_up(&text, 3), [8, 7, 6]);
        assert_eq!(look_up(&text, 10), [8, 7, 6, 5, 1, 2, 3, 9, 8, 7]);
        assert_eq!(look_up(&text, 0), [0u32; 0]);
    }

    #[test]
    fn the_latest_and_longest_occurrence_counts() {
        assert_eq!(look_up(&[1, 2, 5, 1, 2, 6, 1, 2], 1), [6]);
        assert_eq!(look_up(&[3, 1, 2, 5, 4, 1, 2, 6, 3, 1, 2], 1), [5]);
        assert_eq!(look_up(&[7, 7, 7, 7], 5), [7; 5]);
    }

    #[test]
    fn new_words_have_no_draft() {
        for text in [&[][..], &[1], &[1, 1], &[1, 2, 3], &[1, 2, 3, 1]] {
            assert_eq!(look_up(text, 4), [0u32; 0], "{text:?}");
        }
    }
}
