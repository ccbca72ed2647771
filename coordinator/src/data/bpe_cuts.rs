//! Where a text may be cut for GPT-2's byte-level BPE without changing its tokens.

/// A piece that has grown by this many bytes without a place to cut is cut where it is: one word or one run of white
/// space of a mebibyte, whose tokens may then be others at that place. They still decode to the same bytes.
const LONGEST: usize = 1 << 20;
/// Characters of the longest contraction in GPT-2's pattern, such as `'ll`.
const CONTRACTION: usize = 3;

/// Which pairs of neighbouring bytes no merge can join.
///
/// GPT-2's pattern takes a text apart from left to right into words: a contraction such as `'ll`, or an optional space
/// and a run of letters, of digits or of other characters, or a run of white space. It looks ahead only past white
/// space, and no word has white space after another character. BPE then joins neighbours within a word. So a text may be
/// cut
///
/// * before white space that follows something else, where a word ends whatever comes next;
/// * between two characters whose neighbouring bytes no merge joins, as neither side then ever sees the other, with no
///   white space and no apostrophe near that could make another word of what is left.
#[derive(Clone)]
pub struct Cuts {
    /// By the last byte on the left and the first on the right: whether some merge joins them.
    joined: Box<[bool; 1 << 16]>,
}

impl std::fmt::Debug for Cuts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cuts({} pairs are joined)", self.joined.iter().filter(|joined| **joined).count())
    }
}

fn pair(left: u8, right: u8) -> usize {
    usize::from(left) << 8 | usize::from(right)
}

impl Cuts {
    /// Of these merges; `bytes` are those of a token. A token without is joined with everything.
    pub(super) fn of<'a>(merges: &[(String, String)], bytes: impl Fn(&str) -> Option<&'a [u8]>) -> Self {
        let mut joined = Box::new([false; 1 << 16]);
        for (left, right) in merges {
            match (bytes(left).and_then(<[u8]>::last), bytes(right).and_then(<[u8]>::first)) {
                (Some(left), Some(right)) => joined[pair(*left, *right)] = true,
                _ => joined.fill(true),
            }
        }
        Self { joined }
    }

    /// The first place at `size` bytes or later where `text` may be cut; None where it must go on.
    pub fn first(&self, text: &str, size: usize) -> Option<usize> {
        let from = text.floor_char_boundary(size);
        let mut before = text[..from].chars().rev();
        // The last characters, oldest first; white space stands for the beginning of the text.
        let mut last = [' '; CONTRACTION];
        for place in last.iter_mut().rev() {
            *place = before.next().unwrap_or(' ');
        }
        for (i, next) in text[from..].char_indices() {
            let cut = from + i;
            if cut > 0 && self.may_cut(text.as_bytes(), cut, last, next) {
                return Some(cut);
            }
            if i >= LONGEST {
                return Some(cut);
            }
            last = [last[1], last[2], next];
        }
        None
    }

    fn may_cut(&self, text: &[u8], cut: usize, last: [char; CONTRACTION], next: char) -> bool {
        if next.is_whitespace() {
            return !last[CONTRACTION - 1].is_whitespace();
        }
        let plain = |c: char| !c.is_whitespace() && c != '\'';
        last.into_iter().all(plain) && plain(next) && !self.joined[pair(text[cut - 1], text[cut])]
    }

    /// Cuts a text into pieces of at least `size` bytes whose tokens, put together, are the tokens of the whole.
    pub fn pieces<'a>(&'a self, text: &'a str, size: usize) -> impl Iterator<Item = &'a str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (piece, after) = rest.split_at(self.first(rest, size).unwrap_or(rest.len()));
            rest = after;
            Some(piece)
        })
    }
}
