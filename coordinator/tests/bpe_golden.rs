//! GPT-2's BPE against the golden cases.

mod golden_folder;

use std::path::Path;

use coordinator::data::{
    corpus::{Corpus, CorpusError, Source},
    gpt2::Gpt2,
    tokenizer::{Tokenizer, TokenizerError},
};
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn gpt2() -> Tokenizer {
    Tokenizer::gpt2(None, false).expect("built in")
}

fn ids(json: &Value) -> Vec<u32> {
    json.as_array().expect("ids").iter().map(|id| id.as_u64().expect("id") as u32).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("hex"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

#[test]
fn every_golden_case_has_its_ids() {
    let golden = golden_folder::read_json("bpe.json");
    let tokenizer = gpt2();
    let with_end_of_text = Tokenizer::gpt2(None, true).expect("built in");
    assert_eq!(u64::from(tokenizer.vocabulary()), golden["vocab_size"].as_u64().expect("vocab_size"));
    let cases = golden["cases"].as_array().expect("cases");
    assert!(!cases.is_empty());
    for case in cases {
        let text = case["text"].as_str().expect("text");
        let found = tokenizer.encode(text).expect("any text can be encoded");
        assert_eq!(found, ids(&case["ids"]), "{text:?}");
        assert_eq!(tokenizer.decode_text(&found).expect("known ids"), text);
        let special = with_end_of_text.encode(text).expect("any text can be encoded");
        let golden = case.get("ids_with_special").unwrap_or(&case["ids"]);
        assert_eq!(special, ids(golden), "{text:?} with special tokens");
        assert_eq!(tokenizer.decode_text(&special).expect("known ids"), text);
        if let Some(hex) = case["bytes_hex"].as_str() {
            let raw = bytes(hex);
            assert_eq!(tokenizer.encode_lossy(&raw).expect("lossy"), ids(&case["ids"]), "bytes {hex}");
            assert_eq!(String::from_utf8_lossy(&raw), text);
            assert!(tokenizer.encode_bytes(&raw).is_err(), "bytes {hex} are not UTF-8");
        }
    }
}

/// Files of the golden set that the repo has a copy of.
#[test]
fn whole_files_have_their_hash() {
    let golden = golden_folder::read_json("bpe.json");
    let tokenizer = gpt2();
    let data = Path::new("../tests/data");
    let mut checked = 0;
    for file in golden["files"].as_array().expect("files") {
        let name = file["file"].as_str().expect("file");
        let Ok(text) = std::fs::read_to_string(data.join(name)) else { continue };
        let found = tokenizer.encode(&text).expect("any text can be encoded");
        assert_eq!(found.len() as u64, file["tokens"].as_u64().expect("tokens"), "{name}");
        let stream: Vec<u8> = found.iter().flat_map(|id| (*id as u16).to_le_bytes()).collect();
        let hash: String = Sha256::digest(&stream).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, file["ids_u16le_sha256"].as_str().expect("sha256"), "{name}");
        assert_eq!(tokenizer.decode_text(&found).expect("known ids"), text, "{name}");
        checked += 1;
    }
    assert!(checked > 0, "none of the golden files lies in tests/data");
}

#[test]
fn the_files_in_a_folder_give_the_same_tokenizer() {
    let folder = Path::new("../tests/data/gpt2");
    let from_folder = Tokenizer::gpt2(Some(folder), false).expect("the repo's copy");
    assert_eq!(from_folder.hash(), gpt2().hash());
}

#[test]
fn faulty_files_are_refused_in_words() {
    let folder = tempfile::tempdir().expect("folder");
    let words = || Gpt2::from_folder(folder.path()).expect_err("faulty").to_string();
    assert!(words().contains("encoder.json") && words().contains("cannot read"), "{}", words());

    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("write");
    write("vocab.bpe", "#version: 0.2\n");
    for encoder in ["", "[1, 2]", "{\"a\": 0}", "{\"a\": 4000000000}"] {
        write("encoder.json", encoder);
        assert!(words().contains("encoder.json is not GPT-2's"), "{}", words());
    }
    let repo = Path::new("../tests/data/gpt2/encoder.json");
    std::fs::copy(repo, folder.path().join("encoder.json")).expect("copy");
    for merges in ["#version: 0.2\nonlyone\n", "#version: 0.2\nxyzxyzxyz t\n", "t xyzxyz"] {
        write("vocab.bpe", merges);
        assert!(words().contains("vocab.bpe is not GPT-2's"), "{}", words());
    }
}

/// Text of the kinds of characters that GPT-2's pattern tells apart.
fn mixed() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            Just(" ".to_owned()),
            Just("\n".to_owned()),
            Just("\u{85}\u{a0}\u{2003}".to_owned()),
            Just("'s".to_owned()),
            "[a-c0-2.,'é漢\u{feff}\u{200b}🙂]{0,4}",
            any::<char>().prop_map(String::from),
        ],
        0..40,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn pieces_have_the_tokens_of_the_whole(text in mixed(), size in 0usize..12) {
        thread_local! { static GPT2: Gpt2 = Gpt2::built_in().expect("built in"); }
        GPT2.with(|gpt2| {
            let pieces: Vec<&str> = gpt2.cuts().pieces(&text, size).collect();
            prop_assert_eq!(pieces.concat(), text.clone());
            let apart: Vec<u32> = pieces.iter().flat_map(|piece| gpt2.encode(piece).expect("encodes")).collect();
            let whole = gpt2.encode(&text).expect("encodes");
            prop_assert_eq!(&apart, &whole);
            let bytes: Vec<u8> = whole.iter().flat_map(|id| gpt2.token(*id).expect("known id")).copied().collect();
            prop_assert_eq!(bytes, text.as_bytes());
            Ok(())
        })?;
    }

    /// However the text comes in, an `<|endoftext|>` is never cut in two.
    #[test]
    fn ends_of_documents_stay_whole(
        parts in proptest::collection::vec(prop_oneof![Just("<|endoftext|>"), Just("<|endof"), Just("text|>"), Just("a b"), Just("<"), Just("|>\n")], 0..20),
        size in 0usize..20,
    ) {
        thread_local! {
            static GPT2: Gpt2 =
                Gpt2::built_in().and_then(Gpt2::with_end_of_text).expect("built in");
        }
        let text = parts.concat();
        GPT2.with(|gpt2| {
            let (mut held, mut apart) = (String::new(), Vec::new());
            for character in text.chars() {
                held.push(character);
                if let Some(cut) = gpt2.first_cut(&held, size) {
                    let rest = held.split_off(cut);
                    apart.extend(gpt2.encode(&std::mem::replace(&mut held, rest)).expect("encodes"));
                }
            }
            apart.extend(gpt2.encode(&held).expect("encodes"));
            prop_assert_eq!(apart, gpt2.encode(&text).expect("encodes"));
            Ok(())
        })?;
    }

    /// Words without white space, in which only what no merge joins is a place to cut.
    #[test]
    fn long_words_are_cut_without_another_token(text in "[a-z0-9'漢字一龍契士カ.é\u{301}]{0,60}", size in 0usize..12) {
        thread_local! { static GPT2: Gpt2 = Gpt2::built_in().expect("built in"); }
        GPT2.with(|gpt2| {
            let apart: Vec<u32> =
                gpt2.cuts().pieces(&text, size).flat_map(|piece| gpt2.encode(piece).expect("encodes")).collect();
            prop_assert_eq!(apart, gpt2.encode(&text).expect("encodes"));
            Ok(())
        })?;
    }
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// Three megabytes without white space, as Chinese is written.
#[test]
fn a_long_line_is_encoded_a_piece_at_a_time() {
    let line: String = (0u32..1_000_000)
        .map(|i| char::from_u32(0x4e00 + i.wrapping_mul(2_654_435_761) % 3000).expect("an ideograph"))
        .collect();
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("line.txt");
    std::fs::write(&path, &line).expect("write");
    let corpus = Corpus::open(&Source::Path(path), None).expect("reads");
    let tokenizer = gpt2();
    let (mut ids, mut longest) = (Vec::new(), 0);
    let told = |some: &[u32]| -> Result<(), Failed> {
        longest = longest.max(some.len());
        ids.extend_from_slice(some);
        Ok(())
    };
    tokenizer.encode_corpus(&corpus, |_| {}, told).expect("encodes");
    assert!(longest < ids.len() / 2, "{longest} of {} at once", ids.len());
    assert_eq!(tokenizer.decode_text(&ids).expect("known ids"), line);
}

#[test]
fn a_run_with_its_own_files_is_restored_from_a_checkpoint_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
    let repo = Path::new("../tests/data/gpt2");
    for folder in [&ours, &theirs] {
        std::fs::create_dir(folder).expect("folder");
    }
    std::fs::copy(repo.join("encoder.json"), ours.join("encoder.json")).expect("copy");
    let merges = std::fs::read_to_string(repo.join("vocab.bpe")).expect("the repo's copy");
    let (without_last, _) = merges.trim_end().rsplit_once('\n').expect("lines");
    std::fs::write(ours.join("vocab.bpe"), without_last).expect("write");
    let custom = Tokenizer::gpt2(Some(&ours), false).expect("custom files");
    assert_ne!(custom.hash(), gpt2().hash());
    for (name, text) in custom.files() {
        std::fs::write(theirs.join(name), text).expect("write");
    }
    let restored = Tokenizer::restore(&custom.save(), Some(&theirs)).expect("transformers' names");
    assert_eq!(restored.hash(), custom.hash());
    assert!(Tokenizer::restore(&custom.save(), None).is_err());
}
