//! A tokenizer as `tokenizer.json`, the file of the library `tokenizers` that transformers reads.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::data::{
    gpt2::{END_OF_TEXT, letter},
    tokenizer::{SavedTokenizer, Tokenizer},
};

#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Option<Value>,
    #[serde(default)]
    pre_tokenizer: Option<PreTokenizer>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    vocab: BTreeMap<String, u32>,
    #[serde(default)]
    merges: Vec<Merge>,
}

/// Newer files have pairs, older ones a line.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Line(String),
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
}

#[derive(Deserialize)]
struct PreTokenizer {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    add_prefix_space: bool,
    #[serde(default = "yes")]
    use_regex: bool,
}

fn yes() -> bool {
    true
}

/// The texts of `vocab.json` and `merges.txt` that mean the same as a `tokenizer.json` of GPT-2's kind.
///
/// # Errors
/// What makes it another kind, as the rest of a sentence.
pub(super) fn bpe_files(json: &str) -> Result<[String; 2], String> {
    let wrong = |error: serde_json::Error| format!("tokenizer.json is not of a BPE: {error}");
    let value: Value = serde_json::from_str(json).map_err(wrong)?;
    if value["model"]["type"].as_str().is_some_and(|kind| kind != "BPE") {
        return Err(format!("tokenizer.json is of the kind {}, not GPT-2's BPE", value["model"]["type"]));
    }
    let file: File = serde_json::from_value(value).map_err(wrong)?;
    let byte_level = file
        .pre_tokenizer
        .is_some_and(|pre| pre.kind == "ByteLevel" && !pre.add_prefix_space && pre.use_regex);
    if file.model.kind.is_none() && file.model.merges.is_empty() || !byte_level || file.normalizer.is_some() {
        return Err("tokenizer.json takes texts apart in another way than GPT-2".into());
    }
    let mut vocabulary = file.model.vocab;
    for Added { id, content } in file.added_tokens {
        vocabulary.entry(content).or_insert(id);
    }
    let vocabulary = serde_json::to_string(&vocabulary).map_err(wrong)?;
    let mut merges = String::from("#version: 0.2\n");
    for merge in file.model.merges {
        match merge {
            Merge::Pair(left, right) => merges.push_str(&format!("{left} {right}\n")),
            Merge::Line(line) => merges.push_str(&format!("{line}\n")),
        }
    }
    Ok([vocabulary, merges])
}

/// The tokenizer as a `tokenizer.json`, and the token that ends a document, if there is one.
///
/// # Errors
/// Files of the BPE that are not what they were when it was made.
pub(super) fn of(tokenizer: &Tokenizer) -> Result<(Value, Option<&'static str>), serde_json::Error> {
    let byte_level = |words: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words });
    let file = |added: Value, pre_tokenizer: Value, decoder: Value, model: Value| {
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder, "model": model,
        })
    };
    let bpe = |vocab: &BTreeMap<String, u32>, merges: Vec<[&str; 2]>| {
        json!({
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges,
        })
    };
    let value = match (tokenizer.save(), tokenizer.as_gpt2()) {
        (SavedTokenizer::Characters { characters }, _) => {
            let vocab: BTreeMap<String, u32> = characters.chars().map(String::from).zip(0..).collect();
            // Each character by itself, line ends too.
            let each = json!({ "type": "Split", "pattern": { "Regex": r"[\s\S]" }, "behavior": "Isolated", "invert": false });
            let model = json!({ "type": "WordLevel", "vocab": vocab, "unk_token": "<unk>" });
            file(json!([]), each, json!({ "type": "Fuse" }), model)
        }
        (SavedTokenizer::Gpt2 { .. }, Some(gpt2)) => {
            let [(_, vocabulary), (_, merges)] = gpt2.files();
            let vocab: BTreeMap<String, u32> = serde_json::from_str(vocabulary)?;
            let pairs = merges.lines().filter(|line| !line.starts_with("#version"));
            let pairs = pairs.filter_map(|line| line.split_once(' ')).map(|(left, right)| [left, right]);
            let added = gpt2.known_end_of_text().map(|id| {
                json!({
                    "id": id, "content": END_OF_TEXT, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true,
                })
            });
            let added = json!(added.into_iter().collect::<Vec<_>>());
            file(added, byte_level(true), byte_level(true), bpe(&vocab, pairs.collect()))
        }
        (SavedTokenizer::Bytes | SavedTokenizer::Gpt2 { .. }, _) => {
            let vocab = (0..=255u8).map(|byte| (letter(byte).to_string(), u32::from(byte))).collect();
            file(json!([]), byte_level(false), byte_level(false), bpe(&vocab, vec![]))
        }
    };
    let end = tokenizer.as_gpt2().and_then(|gpt2| gpt2.known_end_of_text()).map(|_| END_OF_TEXT);
    Ok((value, end))
}
