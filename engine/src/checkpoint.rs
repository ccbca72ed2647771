//! Checkpoints that Hugging Face's `transformers` reads and writes: `config.json` and `model.safetensors` of a
//! `GPT2LMHeadModel`.

use std::borrow::Cow;

use protocol::{
    blob::BlobHash,
    spec::{Hop, ModelSpec, Part},
};
use safetensors::Dtype;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    device::Device,
    gpt2::shapes,
    parameters::{
        Entry, ParameterError, ParameterSet, ParameterShape, Quantity, STEPS, digest, entry, gather, values,
        write,
    },
};

/// Why a checkpoint cannot be read or written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// A `config.json` that is no JSON, or lacks a size.
    #[error("the config is not JSON for a GPT-2: {0}")]
    Config(String),
    /// Another architecture, or a variant that computes something else.
    #[error("this is no GPT-2 that can be trained here: {0}")]
    Unsupported(String),
    /// Tensors that are missing or misshapen.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
}

/// The two files of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// `config.json`.
    pub config: String,
    /// `model.safetensors`.
    pub weights: Vec<u8>,
}

impl Checkpoint {
    /// The whole model of `parameters`, without AdamW's state.
    ///
    /// # Errors
    ///
    /// [`ParameterError::Missing`] naming what the parameters lack of the model.
    pub async fn new(model: &ModelSpec, parameters: &ParameterSet) -> Result<Checkpoint, CheckpointError> {
        let mut entries = Vec::new();
        for shape in shapes::of_model(model) {
            let index = parameters
                .position(&shape.name)
                .ok_or_else(|| ParameterError::Missing(shape.name.clone()))?;
            entries.push((shape.name, entry(parameters, index, Quantity::Value).await?));
        }
        // transformers refuses files that do not name their framework.
        let weights = write(entries, ("format", "pt"))?;
        Ok(Checkpoint { config: config(model), weights })
    }

    /// The whole model from the parts of a snapshot.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Parameters`] naming what the parts lack.
    pub fn from_snapshot<B: AsRef<[u8]>>(
        model: &ModelSpec,
        parts: &[B],
    ) -> Result<Checkpoint, CheckpointError> {
        let weights = gather(&shapes::of_model(model), parts, ("format", "pt"))?;
        Ok(Checkpoint { config: config(model), weights })
    }

    /// A checkpoint of f32 and full names from what Hugging Face calls a GPT-2: its `config.json`, and one or several
    /// safetensors files of f32, f16 or bf16, whose names may lack the prefix `transformer.`. A tied model's LM head is
    /// its token table, whatever the files have beside it.
    ///
    /// # Errors
    ///
    /// As for [`Checkpoint::load`].
    pub fn import<B: AsRef<[u8]>>(config: &str, files: &[B]) -> Result<Checkpoint, CheckpointError> {
        let model = model(config)?;
        let shapes = shapes::of_model(&model);
        let values = values(&shapes, files)?;
        let bytes = |values: Vec<f32>| values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let entries = shapes.into_iter().zip(values).map(|(ParameterShape { name, shape, .. }, values)| {
            (name, Entry { dtype: Dtype::F32, shape, bytes: Cow::Owned(bytes(values)) })
        });
        let weights = write(entries.collect(), ("format", "pt"))?;
        Ok(Checkpoint { config: self::config(&model), weights })
    }

    /// The weights as parts of a snapshot that has seen no step: the embedding, each layer and the head by themselves, so
    /// that a worker fetches what it holds and little else. A tied head goes with the embedding.
    ///
    /// # Errors
    ///
    /// As for [`Checkpoint::load`].
    pub fn parts(&self) -> Result<Vec<(Part, Vec<u8>)>, CheckpointError> {
        let model = model(&self.config)?;
        let tied = model.tie_embeddings;
        let part = |embedding, [first_layer, end_layer]: [u32; 2], head| Part {
            embedding,
            first_layer,
            end_layer,
            head,
        };
        let mut parts = vec![part(true, [0, 0], tied)];
        parts.extend((0..model.layers).map(|layer| part(false, [layer, layer + 1], false)));
        if !tied {
            parts.push(part(false, [model.layers; 2], true));
        }
        let file = |part: Part| {
            let shapes = shapes::of_hops(&model, &[Hop { index: 0, part: part.clone() }]);
            Ok((part, gather(&shapes, &[&self.weights], (STEPS, "0"))?))
        };
        parts.into_iter().map(file).collect()
    }

    /// The model and its parameters, ready to train or to generate. Names may lack the prefix
    /// `transformer.`; tensors that are no parameters, such as `attn.bias`, are passed over.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] for a config of another architecture and for tensors missing or misshapen.
    pub fn load(&self, device: &Device) -> Result<(ModelSpec, ParameterSet), CheckpointError> {
        let model = model(&self.config)?;
        let parameters = ParameterSet::import(&model, &whole(&model), &[&self.weights], device)?;
        Ok((model, parameters))
    }
}

/// Hash of all weights and moments in the parts of a snapshot, the same however they are spread over the parts.
///
/// # Errors
///
/// [`CheckpointError::Parameters`] when a part is no safetensors file.
pub fn state_hash<B: AsRef<[u8]>>(parts: &[B]) -> Result<BlobHash, CheckpointError> {
    Ok(digest(parts)?)
}

fn whole(model: &ModelSpec) -> [Hop; 1] {
    [Hop { index: 0, part: model.whole() }]
}

/// `config.json` of a model.
pub fn config(model: &ModelSpec) -> String {
    let config = json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "vocab_size": model.vocabulary,
        "n_positions": model.positions,
        "n_ctx": model.positions,
        "n_embd": model.width,
        "n_head": model.heads,
        "n_layer": model.layers,
        "n_inner": null,
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "scale_attn_weights": true,
        "tie_word_embeddings": model.tie_embeddings,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        // GPT-2's own end of text, where the vocabulary has it.
        "bos_token_id": (model.vocabulary == 50_257).then_some(50_256),
        "eos_token_id": (model.vocabulary == 50_257).then_some(50_256),
        "torch_dtype": "float32",
        "use_cache": true,
    });
    format!("{config:#}\n")
}

#[derive(Deserialize)]
struct Config {
    model_type: String,
    vocab_size: u32,
    n_positions: u32,
    n_embd: u32,
    n_head: u32,
    n_layer: u32,
    /// transformers leaves out what equals its defaults in some versions.
    #[serde(default)]
    n_inner: Option<u32>,
    #[serde(default = "gelu_new")]
    activation_function: String,
    #[serde(default = "epsilon")]
    layer_norm_epsilon: f64,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    #[serde(default = "yes")]
    scale_attn_weights: bool,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
}

fn gelu_new() -> String {
    "gelu_new".into()
}

fn epsilon() -> f64 {
    1e-5
}

fn yes() -> bool {
    true
}

/// The model that a `config.json` describes.
///
/// # Errors
///
/// [`CheckpointError::Config`] for other JSON, [`CheckpointError::Unsupported`] for a variant of GPT-2 that
/// computes something else.
pub fn model(config: &str) -> Result<ModelSpec, CheckpointError> {
    let value: Value =
        serde_json::from_str(config).map_err(|error| CheckpointError::Config(error.to_string()))?;
    let config: Config =
        serde_json::from_value(value).map_err(|error| CheckpointError::Config(error.to_string()))?;
    let reason = if config.model_type != "gpt2" {
        format!("its type is `{}`", config.model_type)
    } else if !["gelu_new", "gelu_pytorch_tanh"].contains(&config.activation_function.as_str()) {
        format!("its activation is `{}`, not tanh GELU", config.activation_function)
    } else if config.layer_norm_epsilon != 1e-5 {
        format!("its layer norm epsilon is {}, not 1e-5", config.layer_norm_epsilon)
    } else if config.n_inner.is_some_and(|inner| Some(inner) != config.n_embd.checked_mul(4)) {
        "its MLP is not four times as wide as the model".into()
    } else if config.n_head == 0 || !config.n_embd.is_multiple_of(config.n_head) {
        format!("its {} features cannot be divided among {} heads", config.n_embd, config.n_head)
    } else if !config.scale_attn_weights || config.scale_attn_by_inverse_layer_idx {
        "it scales its attention in another way".into()
    } else {
        return Ok(ModelSpec {
            vocabulary: config.vocab_size,
            positions: config.n_positions,
            width: config.n_embd,
            heads: config.n_head,
            layers: config.n_layer,
            tie_embeddings: config.tie_word_embeddings,
        });
    };
    Err(CheckpointError::Unsupported(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::fixtures::run;

    #[test]
    fn a_config_describes_the_model_it_came_from() {
        let mut spec = run().model;
        assert_eq!(model(&config(&spec)).unwrap(), spec);
        spec.tie_embeddings = true;
        assert_eq!(model(&config(&spec)).unwrap(), spec);
    }

    #[test]
    fn gpt2s_own_config_is_understood() {
        let text = r#"{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
            "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
            "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
            "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
            "summary_type": "cls_index", "vocab_size": 50257}"#;
        let expected = ModelSpec {
            vocabulary: 50_257,
            positions: 1024,
            width: 768,
            heads: 12,
            layers: 12,
            tie_embeddings: true,
        };
        assert_eq!(model(text), Ok(expected));
    }

    #[test]
    fn other_models_are_refused_in_words() {
        let refusal = |from: &str, to: &str| {
            let config = config(&run().model);
            assert!(config.contains(from));
            model(&config.replace(from, to)).unwrap_err().to_string()
        };
        assert_eq!(
            refusal("\"gpt2\"", "\"llama\""),
            "this is no GPT-2 that can be trained here: its type is `llama`"
        );
        assert!(refusal("gelu_new", "relu").contains("`relu`"));
        assert!(refusal("\"n_inner\": null", "\"n_inner\": 7").contains("four times"));
        assert!(refusal("0.00001", "0.000001").contains("0.000001"));
        assert!(refusal("\"n_head\": 2", "\"n_head\": 0").contains("among 0 heads"));
        assert!(refusal("\"n_head\": 2", "\"n_head\": 3").contains("among 3 heads"));
        assert!(refusal("\"n_embd\"", "\"width\"").contains("n_embd"));
    }
}
