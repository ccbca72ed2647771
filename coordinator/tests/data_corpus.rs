//! Sources and tokenizers, and the words when they cannot be used.

use std::{fs, path::PathBuf};

use coordinator::data::{
    corpus::{Corpus, CorpusError, Source},
    tokenizer::{Tokenizer, TokenizerError},
};
use proptest::prelude::*;

/// All bytes of a source.
fn read(source: &Source) -> Result<Vec<u8>, CorpusError> {
    let mut all = Vec::new();
    Corpus::open(source, None)?.read(|bytes| -> Result<(), CorpusError> {
        all.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(all)
}

/// All of a source as text.
fn read_text(source: &Source) -> Result<String, CorpusError> {
    let mut all = String::new();
    Corpus::open(source, None)?.read_text("characters", |text| -> Result<(), CorpusError> {
        all.push_str(text);
        Ok(())
    })?;
    Ok(all)
}

fn write(folder: &std::path::Path, name: &str, bytes: impl AsRef<[u8]>) -> Source {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("parent")).expect("folder");
    fs::write(&path, bytes).expect("write");
    Source::Path(path)
}

#[test]
fn the_dictionary_comes_with_the_program() {
    let text = read_text(&Source::Webster).expect("UTF-8");
    let corpus = Corpus::open(&Source::Webster, None).expect("built in");
    assert_eq!(corpus.fingerprint().expect("built in"), blake3::hash(text.as_bytes()));
    assert!(text.len() > 8_000_000, "{} bytes", text.len());
    assert!(text.contains("\nRUST\nThe reddish yellow coating formed on iron"));
    let words: Vec<&str> = text.split("\n\n").filter_map(|entry| entry.lines().next()).collect();
    assert!(words.len() > 80_000, "{} words", words.len());
    assert!(text.ends_with("\n\n") && !text.contains("\n\n\n"));
}

#[test]
fn a_folder_is_its_files_in_order() {
    let folder = tempfile::tempdir().expect("folder");
    let write = |name: &str, text: &str| write(folder.path(), name, text);
    write("b.txt", "second");
    write("a/x.md", "first");
    write("c", "third");
    write(".hidden", "never");
    let source = Source::Path(folder.path().into());
    write("d-empty", "");
    assert_eq!(read(&source).expect("reads"), b"first\n\nsecond\n\nthird");
    assert_eq!(read(&Source::Path(folder.path().join("c"))).expect("reads"), b"third");
}

#[test]
fn the_folders_of_runs_are_no_text() {
    let folder = tempfile::tempdir().expect("folder");
    let write = |name: &str, text: &str| write(folder.path(), name, text);
    write("a.txt", "text");
    write("other-run/run.toml", "");
    write("other-run/tokenizer.json", "{}");
    write("own/run.log", "new");
    write("z.txt", "more");
    let source = Source::Path(folder.path().into());
    let own = folder.path().join("own");
    let corpus = Corpus::open(&source, Some(&own)).expect("reads");
    assert_eq!(corpus.fingerprint().expect("reads"), blake3::hash(b"text\n\nmore"));
    let error = Corpus::open(&Source::Path(own.clone()), Some(&own)).expect_err("its own folder");
    assert!(matches!(error, CorpusError::OwnFolder { .. }), "{error}");
}

#[test]
fn byte_order_marks_go_and_everything_else_stays() {
    let folder = tempfile::tempdir().expect("folder");
    for (bytes, text) in [
        ("\u{feff}caf\u{e9}\r\n", "caf\u{e9}\r\n"),
        ("a\0b\n", "a\0b\n"),
        ("\u{1f468}\u{200d}\u{1f469} e\u{301} \u{202e}", "\u{1f468}\u{200d}\u{1f469} e\u{301} \u{202e}"),
        ("x\u{feff}", "x\u{feff}"),
        ("x", "x"),
    ] {
        let source = write(folder.path(), "text", bytes);
        assert_eq!(read_text(&source).expect("reads"), text);
        assert_eq!(read(&source).expect("reads"), text.as_bytes());
    }
    for mark in [b"\xff\xfea\0", b"\xfe\xff\0a"] {
        let error = read(&write(folder.path(), "utf16.txt", mark)).expect_err("UTF-16").to_string();
        assert!(error.contains("utf16.txt is UTF-16") && error.contains("save it as UTF-8"), "{error}");
    }
}

#[test]
fn a_source_that_is_missing_or_empty_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let missing = folder.path().join("corpus.txt");
    let error = Corpus::open(&Source::Path(missing.clone()), None).expect_err("missing");
    assert_eq!(
        error.to_string(),
        format!(
            "data.source: there is no file or folder {}; give the path of a text, or \"webster\"",
            missing.display()
        )
    );
    let empty = |path: PathBuf| {
        let error = Corpus::open(&Source::Path(path.clone()), None).expect_err("empty");
        assert!(matches!(error, CorpusError::Empty { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    };
    empty(folder.path().into());
    fs::write(&missing, "").expect("write");
    empty(missing.clone());
    empty(folder.path().into());
}

#[test]
fn text_that_is_not_utf8_is_for_bytes_only_and_its_file_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), "a.txt", "good");
    write(folder.path(), "c-half.txt", "\u{feff}good too");
    let source = Source::Path(folder.path().into());
    for (bytes, at) in [(b"caf\xe9".as_slice(), 3), (b"\xef\xbb\xbfcaf\xe9 na", 6), (b"\xed\xa0\xbd", 0)] {
        write(folder.path(), "b-latin1.txt", bytes);
        let error = read_text(&source).expect_err("not UTF-8").to_string();
        let place = format!("b-latin1.txt is not UTF-8 (byte {at})");
        assert!(error.contains(&place) && error.contains("\"bytes\""), "{error}");
        assert!(read(&source).is_ok());
    }
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
