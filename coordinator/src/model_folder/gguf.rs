//! A model as one GGUF file, the format of llama.cpp: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.
//!
//! Version 3, little-endian: magic, version, numbers of tensors and of metadata; the metadata; name, dimensions, kind and
//! offset of every tensor; the tensors' bytes, each at a multiple of 32. Dimensions stand with the fastest first.
//! Architecture `gpt2`, by the names of llama.cpp; the matrices of layers lie `[outputs, inputs]` there.

use half::f16;
use safetensors::SafeTensors;

use super::FolderModel;
use crate::data::{
    gpt2::{END_OF_TEXT, letter},
    tokenizer::SavedTokenizer,
};

/// Offsets of tensors are multiples of it: GGUF's default.
const ALIGNMENT: usize = 32;

/// Kind of the numbers in matrices; vectors and the position table are always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Precision {
    /// 4 bytes a number.
    F32,
    /// 2 bytes a number.
    F16,
}

/// Metadata's kinds by their numbers in GGUF.
enum Value<'a> {
    U32(u32),
    F32(f32),
    Text(&'a str),
    I32s(Vec<i32>),
    Texts(Vec<String>),
}

struct Tensor {
    name: String,
    /// Fastest first.
    dimensions: Vec<u64>,
    kind: u32,
    bytes: Vec<u8>,
}

/// Why a model does not become a GGUF file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GgufError {
    #[error("the weights are not a safetensors file: {0}")]
    Weights(#[from] safetensors::SafeTensorError),
    #[error("the vocabulary is damaged: {0}")]
    Vocabulary(#[from] serde_json::Error),
}

/// The file's bytes.
///
/// # Errors
/// Weights or a vocabulary that are not what [`super::read`] gave.
pub(crate) fn file(model: &FolderModel, name: &str, precision: Precision) -> Result<Vec<u8>, GgufError> {
    let metadata = metadata(model, name, precision)?;
    let tensors = tensors(model, precision)?;
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in &metadata {
        put_text(&mut out, key);
        put_value(&mut out, value);
    }
    let mut offset = 0;
    for tensor in &tensors {
        put_text(&mut out, &tensor.name);
        out.extend((tensor.dimensions.len() as u32).to_le_bytes());
        tensor.dimensions.iter().for_each(|size| out.extend(size.to_le_bytes()));
        out.extend(tensor.kind.to_le_bytes());
        out.extend((offset as u64).to_le_bytes());
        offset += tensor.bytes.len().next_multiple_of(ALIGNMENT);
    }
    for tensor in tensors {
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out.extend(tensor.bytes);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    Ok(out)
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value<'_>) {
    let list = |out: &mut Vec<u8>, kind: u32, len: usize| {
        out.extend(9u32.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((len as u64).to_le_bytes());
    };
    match value {
        Value::U32(number) => {
            out.extend(4u32.to_le_bytes());
            out.extend(number.to_le_bytes());
        }
        Value::F32(number) => {
            out.extend(6u32.to_le_bytes());
            out.extend(number.to_le_bytes());
        }
        Value::Text(text) => {
            out.extend(8u32.to_le_bytes());
            put_text(out, text);
        }
        Value::I32s(numbers) => {
            list(out, 5, numbers.len());
            numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        }
        Value::Texts(texts) => {
            list(out, 8, texts.len());
            texts.iter().for_each(|text| put_text(out, text));
        }
    }
}

fn metadata<'a>(
    model: &FolderModel,
    name: &'a str,
    precision: Precision,
) -> Result<Vec<(&'static str, Value<'a>)>, GgufError> {
    let sizes = &model.model;
    let mut metadata = vec![
        ("general.architecture", Value::Text("gpt2")),
        ("general.name", Value::Text(name)),
        ("general.file_type", Value::U32(u32::from(precision == Precision::F16))),
        ("general.quantization_version", Value::U32(2)),
        ("gpt2.context_length", Value::U32(sizes.positions)),
        ("gpt2.embedding_length", Value::U32(sizes.width)),
        ("gpt2.feed_forward_length", Value::U32(4 * sizes.width)),
        ("gpt2.block_count", Value::U32(sizes.layers)),
        ("gpt2.attention.head_count", Value::U32(sizes.heads)),
        ("gpt2.attention.layer_norm_epsilon", Value::F32(1e-5)),
    ];
    let (tokens, merges) = match (model.tokenizer.save(), model.tokenizer.as_gpt2()) {
        // llama.cpp has no tokenizer that takes a text apart by its characters: its ids are given to it.
        (SavedTokenizer::Characters { .. }, _) => {
            metadata.push(("tokenizer.ggml.model", Value::Text("none")));
            metadata.push(("gpt2.vocab_size", Value::U32(sizes.vocabulary)));
            return Ok(metadata);
        }
        (_, Some(gpt2)) => {
            let [(_, vocabulary), (_, merges)] = gpt2.files();
            let ids: std::collections::BTreeMap<String, u32> = serde_json::from_str(vocabulary)?;
            let mut tokens: Vec<String> = (0..gpt2.len()).map(|id| format!("[PAD{id}]")).collect();
            ids.into_iter().for_each(|(token, id)| tokens[id as usize] = token);
            let merges = merges.lines().filter(|line| !line.starts_with("#version") && !line.is_empty());
            (tokens, merges.map(str::to_owned).collect())
        }
        _ => ((0..=255).map(|byte| letter(byte).to_string()).collect::<Vec<_>>(), vec![]),
    };
    let end = model.tokenizer.as_gpt2().and_then(|gpt2| gpt2.known_end_of_text());
    // 1: an ordinary token; 3: a control token.
    let kinds = tokens.iter().map(|token| if token == END_OF_TEXT { 3 } else { 1 }).collect();
    metadata.extend([
        ("tokenizer.ggml.model", Value::Text("gpt2")),
        ("tokenizer.ggml.pre", Value::Text("gpt-2")),
        ("tokenizer.ggml.tokens", Value::Texts(tokens)),
        ("tokenizer.ggml.token_type", Value::I32s(kinds)),
        ("tokenizer.ggml.merges", Value::Texts(merges)),
    ]);
    if let Some(end) = end {
        metadata.push(("tokenizer.ggml.bos_token_id", Value::U32(end)));
        metadata.push(("tokenizer.ggml.eos_token_id", Value::U32(end)));
    }
    Ok(metadata)
}

/// The name in llama.cpp of a tensor of Hugging Face's, and whether it lies transposed there.
fn renamed(name: &str) -> (String, bool) {
    let name = name.strip_prefix("transformer.").unwrap_or(name);
    let Some((layer, rest)) = name.strip_prefix("h.").and_then(|rest| rest.split_once('.')) else {
        let whole = match name.split_once('.') {
            Some(("wte", end)) => format!("token_embd.{end}"),
            Some(("wpe", end)) => format!("position_embd.{end}"),
            Some(("ln_f", end)) => format!("output_norm.{end}"),
            Some(("lm_head", end)) => format!("output.{end}"),
            _ => name.to_owned(),
        };
        return (whole, false);
    };
    let (part, end) = rest.rsplit_once('.').unwrap_or((rest, ""));
    let part = match part {
        "ln_1" => "attn_norm",
        "attn.c_attn" => "attn_qkv",
        "attn.c_proj" => "attn_output",
        "ln_2" => "ffn_norm",
        "mlp.c_fc" => "ffn_up",
        "mlp.c_proj" => "ffn_down",
        other => other,
    };
    (format!("blk.{layer}.{part}.{end}"), end == "weight" && !part.ends_with("norm"))
}

fn tensors(model: &FolderModel, precision: Precision) -> Result<Vec<Tensor>, GgufError> {
    let weights = SafeTensors::deserialize(&model.checkpoint.weights)?;
    let mut tensors = Vec::new();
    for (name, view) in weights.iter() {
        let (name, transposed) = renamed(name);
        let shape = view.shape();
        let values: Vec<f32> = view
            .data()
            .chunks_exact(size_of::<f32>())
            .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect();
        let (values, shape) = match *shape {
            [rows, columns] if transposed => {
                let turned = (0..values.len()).map(|i| values[(i % rows) * columns + i / rows]).collect();
                (turned, vec![columns, rows])
            }
            _ => (values, shape.to_vec()),
        };
        let halves = precision == Precision::F16 && shape.len() > 1 && !name.starts_with("position_embd");
        let bytes = match halves {
            true => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
            false => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let dimensions = shape.iter().rev().map(|size| *size as u64).collect();
        tensors.push(Tensor { name, dimensions, kind: u32::from(halves), bytes });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}
