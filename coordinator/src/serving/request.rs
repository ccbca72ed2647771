//! A request for texts, as OpenAI's `/v1/completions` takes it: read from JSON and checked, field by field.
//!
//! Fields: <https://platform.openai.com/docs/api-reference/completions/create>.

use serde_json::{Map, Value};

use crate::data::tokenizer::Tokenizer;

/// Texts that one request may ask for.
const MOST_TEXTS: usize = 16;
/// Stops that one text may have.
const MOST_STOPS: usize = 4;
/// Likeliest tokens that may be told with each.
const MOST_LIKELIEST: u64 = 5;
/// Tokens to add where a request does not say.
const USUAL_TOKENS: u64 = 16;
/// Temperatures above this write noise.
const HOTTEST: f64 = 2.0;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Fault {
    /// One sentence.
    pub(crate) words: String,
    /// The field.
    pub(crate) param: Option<&'static str>,
    /// Its name for programs.
    pub(crate) code: &'static str,
}

impl Fault {
    fn new(param: &'static str, words: String) -> Self {
        Self { words, param: Some(param), code: "invalid_value" }
    }
}

/// A checked request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    /// The prompts as tokens, none empty.
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Texts for each prompt.
    pub(crate) n: usize,
    pub(crate) most_tokens: usize,
    pub(crate) temperature: f64,
    pub(crate) top_p: f64,
    pub(crate) top_k: usize,
    pub(crate) seed: Option<u64>,
    pub(crate) stops: Vec<String>,
    /// Begin each text with its prompt.
    pub(crate) echo: bool,
    /// Tell how likely each token was, and so many of the likeliest in its place.
    pub(crate) logprobs: Option<usize>,
    /// Tokens of one sweep, in block mode.
    pub(crate) chunk: usize,
    pub(crate) stream: bool,
    /// End a stream with the number of tokens.
    pub(crate) stream_usage: bool,
}

/// What requests are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub(crate) model: &'a str,
    pub(crate) tokenizer: &'a Tokenizer,
    /// Tokens that the model reads at a time.
    pub(crate) positions: usize,
    /// Tokens that one sweep may write at most, in block mode.
    pub(crate) sweep: Option<u32>,
    pub(crate) most_tokens: u64,
}

impl Request {
    /// Reads a body.
    ///
    /// # Errors
    /// The first fault.
    pub(crate) fn read(body: &[u8], bounds: Bounds<'_>) -> Result<Self, Fault> {
        let body: Value = serde_json::from_slice(body).map_err(|error| Fault {
            words: format!("the body is not JSON: {error}"),
            param: None,
            code: "invalid_json",
        })?;
        let Value::Object(fields) = body else {
            let words = "the body must be a JSON object such as {\"prompt\": \"Once\"}".into();
            return Err(Fault { words, param: None, code: "invalid_json" });
        };
        let fields = Fields(fields);
        if let Some(model) = fields.text("model")?
            && model != bounds.model
        {
            let words = format!("there is no model `{model}` here, only `{}`", bounds.model);
            return Err(Fault { words, param: Some("model"), code: "model_not_found" });
        }
        fields.refuse_what_is_not_offered()?;
        let most_tokens = fields.whole("max_tokens", 0..=bounds.most_tokens)?;
        let most_tokens = most_tokens.unwrap_or(USUAL_TOKENS.min(bounds.most_tokens)) as usize;
        let n = fields.whole("n", 1..=MOST_TEXTS as u64)?.unwrap_or(1) as usize;
        let prompts = prompts(fields.get("prompt"), bounds)?;
        if prompts.len() * n > MOST_TEXTS {
            let words = format!("{} prompts with n = {n} are more than {MOST_TEXTS} texts", prompts.len());
            return Err(Fault::new("n", words));
        }
        let chunk = fields.whole("chunk", 1..=u64::from(bounds.sweep.unwrap_or(1)))?;
        if bounds.sweep.is_some() && fields.get("logprobs").is_some() {
            let words = "`logprobs` are not offered in block mode; `cohort generate --score` measures a text";
            return Err(Fault::new("logprobs", words.into()));
        }
        let options = fields.get("stream_options").and_then(|options| options.get("include_usage"));
        Ok(Self {
            prompts,
            n,
            most_tokens,
            temperature: fields.number("temperature", 0.0..=HOTTEST)?.unwrap_or(1.0),
            top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0),
            top_k: fields.whole("top_k", 0..=u64::from(u32::MAX))?.unwrap_or(0) as usize,
            seed: fields.whole("seed", 0..=u64::MAX)?,
            stops: stops(fields.get("stop"))?,
            echo: fields.flag("echo")?,
            logprobs: fields.whole("logprobs", 0..=MOST_LIKELIEST)?.map(|count| count as usize),
            chunk: chunk.unwrap_or(1) as usize,
            stream: fields.flag("stream")?,
            stream_usage: options.and_then(Value::as_bool).unwrap_or(false),
        })
    }
}

/// The fields of a body; null counts as left out.
struct Fields(Map<String, Value>);

impl Fields {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &'static str) -> Result<Option<&str>, Fault> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| Fault::new(name, format!("`{name}` must be a text")))
    }

    fn flag(&self, name: &'static str) -> Result<bool, Fault> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| Fault::new(name, format!("`{name}` must be true or false")))
    }

    fn whole(&self, name: &'static str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, Fault> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let found = value.as_u64().filter(|value| range.contains(value));
        found.map(Some).ok_or_else(|| {
            let (least, most) = range.into_inner();
            Fault::new(name, format!("`{name}` must be a whole number from {least} to {most}, not {value}"))
        })
    }

    fn number(&self, name: &'static str, range: std::ops::RangeInclusive<f64>) -> Result<Option<f64>, Fault> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let found = value.as_f64().filter(|value| range.contains(value));
        found.map(Some).ok_or_else(|| {
            let (least, most) = range.into_inner();
            Fault::new(name, format!("`{name}` must be a number from {least} to {most}, not {value}"))
        })
    }

    /// What would change the text and is not done here must not pass in silence.
    fn refuse_what_is_not_offered(&self) -> Result<(), Fault> {
        let refuse =
            |name: &'static str| Err(Fault::new(name, format!("`{name}` is not offered here; leave it out")));
        for name in ["frequency_penalty", "presence_penalty"] {
            if self.get(name).is_some_and(|value| value.as_f64() != Some(0.0)) {
                return refuse(name);
            }
        }
        if self.get("logit_bias").is_some_and(|bias| bias.as_object().is_none_or(|bias| !bias.is_empty())) {
            return refuse("logit_bias");
        }
        if self.get("suffix").is_some_and(|suffix| suffix.as_str() != Some("")) {
            return refuse("suffix");
        }
        let n = self.get("n").and_then(Value::as_u64).unwrap_or(1);
        if self.get("best_of").is_some_and(|best| best.as_u64() != Some(n) && best.as_u64() != Some(1)) {
            return refuse("best_of");
        }
        Ok(())
    }
}

/// A text, tokens, or a list of either.
fn prompts(value: Option<&Value>, bounds: Bounds<'_>) -> Result<Vec<Vec<u32>>, Fault> {
    let fault = |words: String| Fault::new("prompt", words);
    let shape = || fault("`prompt` must be a text, a list of tokens, or a list of either".into());
    let is_tokens = |list: &[Value]| list.iter().all(Value::is_number);
    let one = |value: &Value| -> Result<Vec<u32>, Fault> {
        let tokens = match value {
            Value::String(text) => bounds.tokenizer.encode(text).map_err(|error| fault(error.to_string()))?,
            Value::Array(list) if is_tokens(list) => {
                let vocabulary = bounds.tokenizer.vocabulary();
                let token = |value: &Value| {
                    let token = value.as_u64().filter(|token| *token < u64::from(vocabulary));
                    token.map(|token| token as u32).ok_or_else(|| {
                        fault(format!("{value} is no token of this model, which has {vocabulary}"))
                    })
                };
                list.iter().map(token).collect::<Result<_, _>>()?
            }
            _ => return Err(shape()),
        };
        if tokens.is_empty() {
            return Err(fault("`prompt` is empty; give at least one character".into()));
        }
        if tokens.len() > bounds.positions {
            let (found, most) = (tokens.len(), bounds.positions);
            return Err(fault(format!("`prompt` has {found} tokens; this model reads {most} at a time")));
        }
        Ok(tokens)
    };
    match value {
        None => Err(fault("`prompt` is missing; give the text to continue".into())),
        Some(Value::Array(list)) if list.is_empty() => {
            Err(fault("`prompt` is empty; give at least one text".into()))
        }
        Some(Value::Array(list)) if !is_tokens(list) => {
            if list.len() > MOST_TEXTS {
                return Err(fault(format!("`prompt` has {} texts; {MOST_TEXTS} are let in", list.len())));
            }
            list.iter().map(one).collect()
        }
        Some(value) => Ok(vec![one(value)?]),
    }
}

fn stops(value: Option<&Value>) -> Result<Vec<String>, Fault> {
    let fault = || {
        Fault::new(
            "stop",
            format!("`stop` must be a text or a list of up to {MOST_STOPS}, none of them empty"),
        )
    };
    let text =
        |value: &Value| value.as_str().filter(|stop| !stop.is_empty()).map(str::to_owned).ok_or_else(fault);
    match value {
        None => Ok(vec![]),
        Some(Value::Array(list)) if list.len() <= MOST_STOPS => list.iter().map(text).collect(),
        Some(value) => Ok(vec![text(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<Request, Fault> {
        let tokenizer = Tokenizer::bytes();
        Request::read(body.to_string().as_bytes(), bounds(&tokenizer, None))
    }

    fn bounds(tokenizer: &Tokenizer, sweep: Option<u32>) -> Bounds<'_> {
        Bounds { model: "tiny", tokenizer, positions: 8, sweep, most_tokens: 100 }
    }

    #[test]
    fn in_block_mode_a_sweep_may_write_several_tokens() {
        let tokenizer = Tokenizer::bytes();
        let read = |body: Value, sweep| Request::read(body.to_string().as_bytes(), bounds(&tokenizer, sweep));
        let chunk =
            |chunk: u64, sweep| read(json!({ "prompt": "a", "chunk": chunk }), sweep).map(|r| r.chunk);
        assert_eq!(chunk(8, Some(8)), Ok(8));
        assert_eq!(chunk(1, None), Ok(1));
        assert_eq!(read(json!({ "prompt": "a" }), Some(8)).unwrap().chunk, 1);
        assert_eq!(chunk(9, Some(8)).unwrap_err().param, Some("chunk"));
        assert_eq!(chunk(2, None).unwrap_err().param, Some("chunk"));
        let scored = read(json!({ "prompt": "a", "logprobs": 0 }), Some(8)).unwrap_err();
        assert_eq!(scored.param, Some("logprobs"));
    }

    #[test]
    fn what_is_left_out_has_openais_defaults() {
        let request =
            read(&json!({ "model": "tiny", "prompt": "ab", "user": "somebody", "suffix": null })).unwrap();
        assert_eq!(request.prompts, [vec![97, 98]]);
        assert_eq!((request.n, request.most_tokens, request.temperature, request.top_p), (1, 16, 1.0, 1.0));
        assert!(!request.echo && !request.stream && request.logprobs.is_none() && request.seed.is_none());
    }

    #[test]
    fn prompts_are_texts_or_tokens_alone_or_in_a_list() {
        let prompts = |prompt: Value| read(&json!({ "prompt": prompt })).map(|request| request.prompts);
        assert_eq!(prompts(json!([97, 98])).unwrap(), [vec![97, 98]]);
        assert_eq!(prompts(json!(["a", "b"])).unwrap(), [vec![97], vec![98]]);
        assert_eq!(prompts(json!([[97], "b"])).unwrap(), [vec![97], vec![98]]);
    }

    #[test]
    fn each_fault_names_its_field() {
        let long = "x".repeat(9);
        for (body, param, part) in [
            (json!({}), "prompt", "missing"),
            (json!({ "prompt": "" }), "prompt", "empty"),
            (json!({ "prompt": [] }), "prompt", "empty"),
            (json!({ "prompt": [[]] }), "prompt", "empty"),
            (json!({ "prompt": 5 }), "prompt", "must be a text"),
            (json!({ "prompt": [256] }), "prompt", "no token"),
            (json!({ "prompt": [-1] }), "prompt", "no token"),
            (json!({ "prompt": long }), "prompt", "9 tokens; this model reads 8"),
            (json!({ "prompt": "a", "max_tokens": 101 }), "max_tokens", "from 0 to 100"),
            (json!({ "prompt": "a", "max_tokens": 1.5 }), "max_tokens", "whole number"),
            (json!({ "prompt": "a", "n": 0 }), "n", "from 1"),
            (json!({ "prompt": ["a", "b"], "n": 9 }), "n", "more than 16"),
            (json!({ "prompt": "a", "temperature": -1 }), "temperature", "from 0 to 2"),
            (json!({ "prompt": "a", "top_p": "1" }), "top_p", "number"),
            (json!({ "prompt": "a", "stop": ["", "b"] }), "stop", "none of them empty"),
            (json!({ "prompt": "a", "stop": ["a", "b", "c", "d", "e"] }), "stop", "up to 4"),
            (json!({ "prompt": "a", "logprobs": 6 }), "logprobs", "from 0 to 5"),
            (json!({ "prompt": "a", "stream": 1 }), "stream", "true or false"),
            (json!({ "prompt": "a", "presence_penalty": 0.5 }), "presence_penalty", "not offered"),
            (json!({ "prompt": "a", "logit_bias": { "5": 1 } }), "logit_bias", "not offered"),
            (json!({ "prompt": "a", "model": "gpt-4" }), "model", "only `tiny`"),
        ] {
            let fault = read(&body).expect_err(&body.to_string());
            assert_eq!(fault.param, Some(param), "{body}");
            assert!(fault.words.contains(part), "{body}: {fault}");
        }
        let tokenizer = Tokenizer::bytes();
        for body in [&b"{"[..], b"[]", b"\xff"] {
            assert_eq!(Request::read(body, bounds(&tokenizer, None)).unwrap_err().code, "invalid_json");
        }
    }
}
