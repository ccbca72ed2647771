//! What the pages are told of texts that the model writes: `GET /v1/serving` and `GET /v1/samples`. The requests
//! themselves have OpenAI's shape.

use serde::{Deserialize, Serialize};

/// Who writes texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Nobody.
    Off,
    /// The coordinator, from the newest snapshot.
    Coordinator,
    /// The workers that hold the model.
    Workers,
}

/// The model that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelView {
    /// Name of the run, by which requests name the model.
    pub name: String,
    /// Its numbers.
    pub parameters: u64,
    /// Tokens that it can read at a time.
    pub positions: u32,
    /// Steps that it has been trained for.
    pub step: u64,
    /// Tokens that one sweep may write at most, in block mode; None in pipeline mode, which writes token by token.
    pub sweep: Option<u32>,
}

/// Whether texts can be asked for, and of what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServingView {
    /// Who writes them.
    #[serde(rename = "where")]
    pub place: Place,
    /// Everybody may ask; otherwise only the organizer.
    pub open: bool,
    /// The organizer's switch.
    pub on: bool,
    /// None before the first snapshot.
    pub model: Option<ModelView>,
    /// Why nothing is written now, in words; None: it is.
    pub why: Option<String>,
    /// Tokens that one text may have at most.
    pub most_tokens: u32,
    /// Texts that wait for their turn.
    pub waiting: u32,
}

/// What the model wrote at one age.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Steps that it had been trained for.
    pub step: u64,
    /// What it wrote after the prompt.
    pub text: String,
}

/// What the model wrote at several ages, always after the same words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Samples {
    /// The words.
    pub prompt: String,
    /// Oldest first.
    pub samples: Vec<Sample>,
}
