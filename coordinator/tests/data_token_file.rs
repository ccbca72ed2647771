//! Token files: reuse, damage, and both widths.

use std::{fs, path::Path, sync::Arc};

use coordinator::data::{
    DataError, Dataset,
    corpus::Source,
    token_file::{TokenFile, TokenFileError, TokenKey, TokenWriter},
    tokenizer::TokenizerKind,
};
use proptest::prelude::*;

fn key() -> TokenKey {
    TokenKey {
        tokenizer: blake3::hash(b"tokenizer"),
        source: blake3::hash(b"source"),
        validation_fraction: 0.25,
    }
}

fn write(path: &Path, vocabulary: u32, ids: &[u32]) -> TokenFile {
    let mut writer = TokenWriter::create(path, &key(), vocabulary).expect("creates");
    for part in ids.chunks(7) {
        writer.push(part).expect("writes");
    }
    writer.finish().expect("finishes")
}

fn all(file: &TokenFile) -> Vec<u32> {
    let mut ids = Vec::new();
    file.read(0, file.len() as usize, &mut ids);
    ids
}

#[test]
fn small_vocabularies_take_two_bytes_an_id() {
    let folder = tempfile::tempdir().expect("folder");
    let size = |vocabulary: u32, last: u32| {
        let path = folder.path().join(format!("{vocabulary}.tokens"));
        let file = write(&path, vocabulary, &[0, 1, last]);
        assert_eq!(all(&file), [0, 1, last]);
        assert_eq!(file.vocabulary(), vocabulary);
        fs::metadata(path).expect("file").len()
    };
    assert_eq!(size(65_536, 65_535), 168 + 6);
    assert_eq!(size(65_537, 65_536), 168 + 12);
}

#[test]
fn an_id_beyond_the_vocabulary_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let mut writer = TokenWriter::create(&folder.path().join("x.tokens"), &key(), 10).expect("creates");
    let error = writer.push(&[9, 10]).expect_err("10 is not below 10");
    assert!(matches!(error, TokenFileError::IdTooLarge { id: 10, vocabulary: 10 }), "{error}");
}

#[test]
fn nothing_half_written_gets_the_name() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("x.tokens");
    let mut writer = TokenWriter::create(&path, &key(), 10).expect("creates");
    writer.push(&[1, 2, 3]).expect("writes");
    assert!(!path.exists());
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 0, "the temporary file is gone too");
}

#[test]
fn a_file_of_something_else_is_stale() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("x.tokens");
    write(&path, 10, &[1; 100]);
    let stale = |other: TokenKey, part: &str| {
        let error = TokenFile::open(&path, &other).expect_err("stale");
        assert!(matches!(error, TokenFileError::Stale { what, .. } if what == part), "{error}");
        assert_ne!(other.file_name(), key().file_name());
    };
    stale(TokenKey { tokenizer: blake3::hash(b"other"), ..key() }, "tokenizer");
    stale(TokenKey { source: blake3::hash(b"other"), ..key() }, "source");
    stale(TokenKey { validation_fraction: 0.5, ..key() }, "validation_fraction");
    assert!(TokenFile::open(&path, &key()).is_ok());
}

#[test]
fn an_empty_file_is_damaged_not_a_crash() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("x.tokens");
    for length in [0, 1, 167] {
        fs::write(&path, vec![0; length]).expect("write");
        let error = TokenFile::open(&path, &key()).expect_err("damaged");
        assert!(matches!(error, TokenFileError::Damaged { .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(
        ids in proptest::collection::vec(0u32..70_000, 1..200), start in 0u64..250, count in 0usize..250,
    ) {
        let folder = tempfile::tempdir().expect("folder");
        let file = write(&folder.path().join("x.tokens"), 70_000, &ids);
        prop_assert_eq!(all(&file), ids.clone());
        prop_assert_eq!(file.train_tokens(), ids.len() as u64 - (ids.len() as f64 * 0.25).round() as u64);
        let mut part = Vec::new();
        file.read(start, count, &mut part);
        let expected: Vec<u32> = ids.iter().copied().skip(start as usize).take(count).collect();
        prop_assert_eq!(part, expected);
    }

    #[test]
    fn any_damage_is_noticed(ids in proptest::collection::vec(0u32..256, 1..60), at in any::<usize>(), cut in any::<bool>(), flip in 1u8..) {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("x.tokens");
        write(&path, 256, &ids);
        let mut bytes = fs::read(&path).expect("read");
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        fs::write(&path, bytes).expect("write");
        let error = TokenFile::open(&path, &key()).expect_err("damaged");
        prop_assert!(matches!(error, TokenFileError::Damaged { .. }), "{}", error);
    }
}

fn prepare(source: &Path, kind: TokenizerKind, folder: &Path) -> Result<Dataset, DataError> {
    Dataset::prepare(&Source::Path(source.into()), kind.into(), 0.1, folder, None)
}

#[test]
fn a_dataset_is_tokenised_once_and_mended_when_damaged() {
    let folder = tempfile::tempdir().expect("folder");
    let text = folder.path().join("corpus.txt");
    let cache = folder.path().join("tokens/made/here");
    let sentence = "The quick brown fox jumps over the lazy dog. ";
    fs::write(&text, sentence.repeat(50)).expect("write");
    let length = |kind| match kind {
        TokenizerKind::Gpt2 => None,
        _ => Some(sentence.len() as u64 * 50),
    };
    for kind in TokenizerKind::ALL {
        let made = prepare(&text, kind, &cache).expect("prepares");
        assert_eq!(made.tokenizer.decode_text(&all(&made.tokens)).expect("known ids"), sentence.repeat(50));
        assert!(length(kind).is_none_or(|n| n == made.tokens.len()));
        assert_eq!(made.tokens.vocabulary(), made.tokenizer.vocabulary());
    }
    let files = || -> Vec<_> {
        let entries = fs::read_dir(&cache).expect("folder").map(|e| e.expect("entry"));
        let mut files: Vec<_> =
            entries.map(|e| (e.path(), e.metadata().expect("file").modified().expect("time"))).collect();
        files.sort();
        files
    };
    let before = files();
    assert_eq!(before.len(), 3, "one file for each tokenizer and nothing else");
    for kind in TokenizerKind::ALL {
        prepare(&text, kind, &cache).expect("prepares");
    }
    assert_eq!(files(), before, "made once");

    for (path, _) in &before {
        fs::write(path, b"COHORTOK and then nothing").expect("write");
    }
    for kind in TokenizerKind::ALL {
        let mended = prepare(&text, kind, &cache).expect("mended");
        assert_eq!(
            mended.tokenizer.decode_text(&all(&mended.tokens)).expect("known ids"),
            sentence.repeat(50)
        );
    }
    assert_eq!(files().len(), 3);

    fs::write(&text, sentence.repeat(20)).expect("write");
    let other = prepare(&text, TokenizerKind::Bytes, &cache).expect("prepares");
    assert_eq!(other.tokens.len(), sentence.len() as u64 * 20, "a changed corpus is tokenised anew");
}

#[test]
fn a_corpus_the_tokenizer_cannot_read_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let text = folder.path().join("latin1.txt");
    fs::write(&text, b"caf\xe9".repeat(100)).expect("write");
    assert!(prepare(&text, TokenizerKind::Bytes, folder.path()).is_ok());
    for kind in [TokenizerKind::Characters, TokenizerKind::Gpt2] {
        let error = prepare(&text, kind, folder.path()).expect_err("not UTF-8").to_string();
        assert!(error.contains("latin1.txt") && error.contains(kind.name()), "{error}");
    }
}

#[test]
fn the_dictionary_is_prepared_and_shared_between_threads() {
    let folder = tempfile::tempdir().expect("folder");
    let made = Dataset::prepare(&Source::Webster, TokenizerKind::Bytes.into(), 0.1, folder.path(), None)
        .expect("prepares");
    assert!(made.tokens.len() > 8_000_000);
    let tokens: Arc<TokenFile> = made.tokens.clone();
    let first = std::thread::spawn(move || {
        let mut ids = Vec::new();
        tokens.read(0, 6, &mut ids);
        ids
    });
    assert_eq!(first.join().expect("thread").len(), 6);
}
