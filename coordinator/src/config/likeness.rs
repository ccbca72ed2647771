//! Names in sentences: lists of them, and which one was probably meant.

/// The name most like `word`, if one is alike enough to be meant.
pub(super) fn nearest<'n>(word: &str, names: &[&'n str]) -> Option<&'n str> {
    let likeness = |name: &str| strsim::jaro_winkler(word, name);
    let best = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.8).then_some(best)
}

/// Names in a sentence.
pub(super) fn list(names: &[&str]) -> String {
    names.join(", ")
}
