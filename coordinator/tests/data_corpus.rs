//! Sources and tokenizers, and the words when they cannot be used.

use std::{fs, path::PathBuf};

use coordinator::data::{
    corpus::{Corpus, CorpusError, Source, fingerprint},
    tokenizer::{Tokenizer, TokenizerError, TokenizerKind},
};
use proptest::prelude::*;

#[test]
fn the_dictionary_comes_with_the_program() {
    let corpus = Corpus::load(&Source::Webster).expect("built in");
    let text = corpus.text("characters").expect("UTF-8");
    assert_eq!(fingerprint(&Source::Webster).expect("built in"), corpus.hash);
    assert!(text.len() > 8_000_000, "{} bytes", text.len());
    assert!(text.contains("\nRUST\nThe reddish yellow coating formed on iron"));
    let words: Vec<&str> = text.split("\n\n").filter_map(|entry| entry.lines().next()).collect();
    assert!(words.len() > 80_000, "{} words", words.len());
    assert!(text.ends_with("\n\n") && !text.contains("\n\n\n"));
}

#[test]
fn a_folder_is_its_files_in_order() {
    let folder = tempfile::tempdir().expect("folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        fs::write(path, text).expect("write");
    };
    write("b.txt", "second");
    write("a/x.md", "first");
    write("c", "third");
    write(".hidden", "never");
    let source = Source::Path(folder.path().into());
    let corpus = Corpus::load(&source).expect("reads");
    assert_eq!(corpus.bytes, b"first\n\nsecond\n\nthird");
    assert_eq!(fingerprint(&source).expect("reads"), corpus.hash);
    let file = Corpus::load(&Source::Path(folder.path().join("c"))).expect("reads");
    assert_eq!(file.bytes, b"third");
}

#[test]
fn a_source_that_is_missing_or_empty_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let missing = folder.path().join("corpus.txt");
    let error = fingerprint(&Source::Path(missing.clone())).expect_err("missing");
    assert_eq!(
        error.to_string(),
        format!(
            "data.source: there is no file or folder {}; give the path of a text, or \"webster\"",
            missing.display()
        )
    );
    let empty = |path: PathBuf| {
        let error = Corpus::load(&Source::Path(path.clone())).expect_err("empty");
        assert!(matches!(error, CorpusError::Empty { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    };
    empty(folder.path().into());
    fs::write(&missing, "").expect("write");
    empty(missing.clone());
    empty(folder.path().into());
}

#[test]
fn text_that_is_not_utf8_is_for_bytes_only() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("latin1.txt");
    fs::write(&path, b"caf\xe9").expect("write");
    let corpus = Corpus::load(&Source::Path(path)).expect("reads");
    assert!(Tokenizer::bytes().pieces(&corpus).is_ok());
    let error = corpus.text(TokenizerKind::Characters.name()).expect_err("not UTF-8").to_string();
    assert!(
        error.contains("latin1.txt") && error.contains("byte 3") && error.contains("\"bytes\""),
        "{error}"
    );
}

#[test]
fn characters_are_numbered_by_code_point_and_survive_saving() {
    let tokenizer = Tokenizer::characters("héllo\nwörld");
    assert_eq!(tokenizer.vocabulary(), 9);
    assert_eq!(tokenizer.encode("\ndé").expect("known"), [0, 1, 7]);
    let error = tokenizer.encode("hello").expect_err("no e in it");
    assert!(matches!(error, TokenizerError::UnknownCharacter('e')), "{error}");
    let error = tokenizer.decode(&[9]).expect_err("unknown id").to_string();
    assert!(error.contains("token 9") && error.contains("vocabulary of 9"), "{error}");
    let saved = serde_json::to_string(&tokenizer.save()).expect("JSON");
    let restored = Tokenizer::restore(&serde_json::from_str(&saved).expect("JSON"), None).expect("restores");
    assert_eq!(restored.hash(), tokenizer.hash());
    assert_ne!(tokenizer.hash(), Tokenizer::bytes().hash());
}

proptest! {
    #[test]
    fn bytes_and_characters_come_back(text in any::<String>(), raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = Tokenizer::bytes();
        prop_assert_eq!(bytes.decode(&bytes.encode_bytes(&raw).expect("any bytes")).expect("bytes"), raw);
        let characters = Tokenizer::characters(&text);
        let ids = characters.encode(&text).expect("its own text");
        prop_assert!(ids.iter().all(|id| *id < characters.vocabulary()));
        prop_assert_eq!(characters.decode_text(&ids).expect("its own ids"), text);
    }
}
