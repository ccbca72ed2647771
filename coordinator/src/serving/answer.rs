//! Answers in the shape of OpenAI's `/v1/completions`: whole, or in pieces as they come.
//!
//! Shape: <https://platform.openai.com/docs/api-reference/completions/object>.

use engine::generate::{self, Sampling, Token};
use serde_json::{Value, json};

use super::{Request, desk::Told, pieces::Pieces};
use crate::data::tokenizer::Tokenizer;

/// The texts of one request while they are written.
pub(crate) struct Answer {
    head: Value,
    request: Request,
    texts: Vec<Written>,
    prompt_tokens: usize,
}

/// One of its texts.
struct Written {
    prompt: Vec<u32>,
    pieces: Pieces,
    /// Characters told so far.
    characters: usize,
    /// What is known of its tokens and not told yet.
    scores: Vec<Score>,
    /// Characters of the tokens that have come, told or not.
    come: usize,
    tokens: usize,
    begun: bool,
    finished: Option<&'static str>,
}

/// How likely a token was.
struct Score {
    token: String,
    log_probability: Option<f64>,
    likeliest: Option<Value>,
    /// Characters of the text before it.
    offset: usize,
}

impl Answer {
    /// The answer to a request of this number, by a model that has been trained for so many steps.
    pub(crate) fn new(id: &str, created: u64, model: &str, step: u64, request: Request) -> Self {
        let head = json!({
            "id": id,
            "object": "text_completion",
            "created": created,
            "model": model,
            "system_fingerprint": format!("step-{step}"),
        });
        let texts = request
            .prompts
            .iter()
            .flat_map(|prompt| std::iter::repeat_n(prompt, request.n))
            .map(|prompt| Written {
                prompt: prompt.clone(),
                pieces: Pieces::new(request.stops.clone()),
                characters: 0,
                scores: Vec::new(),
                come: 0,
                tokens: 0,
                begun: false,
                finished: None,
            })
            .collect();
        let prompt_tokens = request.prompts.iter().map(Vec::len).sum();
        Self { head, request, texts, prompt_tokens }
    }

    /// What is to be written, text by text, and how many tokens a sweep of block mode; `seed` where the request has none.
    pub(crate) fn wanted(&self, seed: u64) -> Vec<(generate::Request, usize)> {
        let Request { temperature, top_p, top_k, most_tokens, echo, logprobs, .. } = &self.request;
        let first = self.request.seed.unwrap_or(seed);
        let sampling = |index: usize| Sampling {
            temperature: *temperature,
            top_k: *top_k,
            top_p: *top_p,
            // Texts of one prompt would all be the same.
            seed: first.wrapping_add((index % self.request.n) as u64),
        };
        let texts = self.texts.iter().enumerate();
        texts
            .map(|(index, text)| {
                let request = generate::Request {
                    likeliest: logprobs.unwrap_or(0),
                    score_prompt: *echo && logprobs.is_some(),
                    ..generate::Request::new(text.prompt.clone(), *most_tokens, sampling(index))
                };
                (request, self.request.chunk)
            })
            .collect()
    }

    /// Takes in what has come of a text; gives the piece that can be told by now, if there is one.
    ///
    /// # Errors
    /// The words of a failure.
    pub(crate) fn take(
        &mut self,
        index: usize,
        told: Told,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Value>, String> {
        let (with_scores, echo) = (self.request.logprobs.is_some(), self.request.echo);
        let Some(text) = self.texts.get_mut(index).filter(|text| text.finished.is_none()) else {
            return Ok(None);
        };
        let mut piece = String::new();
        match told {
            Told::Place(_) => return Ok(None),
            Told::Failed(words) => return Err(words),
            Told::Wrote { prompt, tokens } => {
                if !text.begun {
                    text.begun = true;
                    if echo {
                        let words = |ids: &[u32]| tokenizer.decode_text(ids).map_err(|e| e.to_string());
                        piece = words(&text.prompt)?;
                        let first = words(&text.prompt[..1])?;
                        if with_scores {
                            text.score(Score {
                                token: first,
                                log_probability: None,
                                likeliest: None,
                                offset: 0,
                            });
                        }
                    }
                }
                for token in prompt {
                    let (score, _) = scored(&token, tokenizer)?;
                    text.score(score);
                }
                if echo && text.tokens == 0 {
                    text.come = text.come.max(piece.chars().count());
                }
                for token in tokens {
                    text.tokens += 1;
                    let (score, id) = scored(&token, tokenizer)?;
                    if with_scores {
                        text.score(score);
                    }
                    piece.push_str(&text.pieces.add(id, tokenizer).map_err(|error| error.to_string())?);
                    if text.pieces.stopped() {
                        text.finished = Some("stop");
                        break;
                    }
                }
            }
            Told::Ended => {
                piece = text.pieces.rest();
                text.finished = Some(if text.pieces.stopped() { "stop" } else { "length" });
            }
        }
        if piece.is_empty() && text.finished.is_none() {
            return Ok(None);
        }
        text.characters += piece.chars().count();
        let scores = with_scores.then(|| text.told_scores());
        let choice =
            json!({ "text": piece, "index": index, "logprobs": scores, "finish_reason": text.finished });
        Ok(Some(self.with(&json!({ "choices": [choice] }))))
    }

    /// Whether a text has ended before the model's own end: it is not wanted any more.
    pub(crate) fn has_stopped(&self, index: usize) -> bool {
        self.texts.get(index).is_some_and(|text| text.finished == Some("stop"))
    }

    /// Whether all texts have ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.texts.iter().all(|text| text.finished.is_some())
    }

    /// Whether it is told in pieces.
    pub(crate) fn is_stream(&self) -> bool {
        self.request.stream
    }

    /// The last piece of a stream, where it was asked for.
    pub(crate) fn usage_piece(&self) -> Option<Value> {
        self.request.stream_usage.then(|| self.with(&json!({ "choices": [], "usage": self.usage() })))
    }

    /// The whole answer of its pieces.
    pub(crate) fn whole(&self, pieces: &[Value]) -> Value {
        let choices: Vec<Value> = (0..self.texts.len())
            .map(|index| {
                let own = pieces.iter().filter_map(|piece| {
                    piece["choices"].as_array()?.first().filter(|choice| choice["index"] == index)
                });
                let own: Vec<&Value> = own.collect();
                let text: String = own.iter().filter_map(|choice| choice["text"].as_str()).collect();
                let scores = self.request.logprobs.is_some().then(|| joined(&own));
                let finish = own.last().map(|choice| choice["finish_reason"].clone());
                json!({ "text": text, "index": index, "logprobs": scores, "finish_reason": finish })
            })
            .collect();
        self.with(&json!({ "choices": choices, "usage": self.usage() }))
    }

    fn usage(&self) -> Value {
        let (prompt, completion) =
            (self.prompt_tokens, self.texts.iter().map(|text| text.tokens).sum::<usize>());
        json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion })
    }

    fn with(&self, fields: &Value) -> Value {
        let mut answer = self.head.clone();
        if let (Some(answer), Some(fields)) = (answer.as_object_mut(), fields.as_object()) {
            answer.extend(fields.clone());
        }
        answer
    }
}

/// Lists of scores that OpenAI's shape keeps beside each other.
const LISTS: [&str; 4] = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];

fn joined(choices: &[&Value]) -> Value {
    let list = |name: &str| -> Value {
        choices.iter().filter_map(|choice| choice["logprobs"][name].as_array()).flatten().cloned().collect()
    };
    LISTS.iter().map(|name| ((*name).to_owned(), list(name))).collect::<serde_json::Map<_, _>>().into()
}

fn scored(token: &Token, tokenizer: &Tokenizer) -> Result<(Score, u32), String> {
    let words = |id: u32| tokenizer.decode_text(&[id]).map_err(|error| error.to_string());
    let mut likeliest = serde_json::Map::new();
    for (id, log_probability) in &token.likeliest {
        likeliest.insert(words(*id)?, json!(log_probability));
    }
    let own = words(token.id)?;
    // The token itself is told too, so there may be one more than was asked for.
    let likeliest = (!likeliest.is_empty()).then(|| {
        likeliest.entry(own.clone()).or_insert_with(|| json!(token.log_probability));
        likeliest.into()
    });
    let log_probability = Some(token.log_probability);
    Ok((Score { token: own, log_probability, likeliest, offset: 0 }, token.id))
}

impl Written {
    fn score(&mut self, mut score: Score) {
        score.offset = self.come;
        self.come += score.token.chars().count();
        self.scores.push(score);
    }

    /// The scores that are not told yet; of a text that was stopped, without those of the stop.
    fn told_scores(&mut self) -> Value {
        let (stopped, characters) = (self.finished == Some("stop"), self.characters);
        let scores: Vec<Score> =
            self.scores.drain(..).filter(|score| !stopped || score.offset < characters).collect();
        let list = |of: &dyn Fn(&Score) -> Value| scores.iter().map(of).collect::<Vec<_>>();
        json!({
            "tokens": list(&|score| json!(score.token)),
            "token_logprobs": list(&|score| json!(score.log_probability)),
            "top_logprobs": list(&|score| json!(score.likeliest)),
            "text_offset": list(&|score| json!(score.offset)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::Bounds;

    fn answer(body: &Value, tokenizer: &Tokenizer) -> Answer {
        let bounds = Bounds { model: "tiny", tokenizer, positions: 32, sweep: None, most_tokens: 100 };
        let request = Request::read(body.to_string().as_bytes(), bounds).unwrap();
        Answer::new("cmpl-1", 7, "tiny", 20, request)
    }

    fn wrote(text: &str) -> Told {
        let token = |byte: u8| Token {
            id: u32::from(byte),
            log_probability: -f64::from(byte) / 100.0,
            likeliest: vec![(u32::from(byte), -f64::from(byte) / 100.0), (33, -9.0)],
        };
        Told::Wrote { prompt: vec![], tokens: text.bytes().map(token).collect() }
    }

    #[test]
    fn pieces_and_the_whole_say_the_same() {
        let tokenizer = Tokenizer::bytes();
        let mut answer = answer(
            &json!({ "prompt": ["a", "b"], "stop": "\n", "logprobs": 1, "max_tokens": 5 }),
            &tokenizer,
        );
        let wanted = answer.wanted(9);
        assert_eq!(wanted.iter().map(|(text, _)| text.prompt[0]).collect::<Vec<_>>(), [97, 98]);
        let (first, chunk) = &wanted[0];
        assert_eq!((first.count, first.likeliest, first.sampling.seed, *chunk), (5, 1, 9, 1));
        let mut pieces = Vec::new();
        for (index, told) in [
            (0, Told::Place(2)),
            (0, wrote("xy")),
            (1, wrote("one\n")),
            (1, wrote("two")),
            (0, wrote("z")),
            (0, Told::Ended),
        ] {
            pieces.extend(answer.take(index, told, &tokenizer).unwrap());
        }
        assert!(answer.is_finished() && answer.has_stopped(1) && !answer.has_stopped(0));
        let whole = answer.whole(&pieces);
        assert_eq!(whole["choices"][0]["text"], "xyz");
        assert_eq!(whole["choices"][0]["finish_reason"], "length");
        assert_eq!(whole["choices"][1]["text"], "one");
        assert_eq!(whole["choices"][1]["finish_reason"], "stop");
        assert_eq!(whole["choices"][1]["logprobs"]["tokens"], json!(["o", "n", "e"]), "not the stop's");
        assert_eq!(whole["choices"][0]["logprobs"]["text_offset"], json!([0, 1, 2]));
        assert_eq!(whole["choices"][0]["logprobs"]["top_logprobs"][0], json!({ "x": -1.2, "!": -9.0 }));
        assert_eq!(whole["usage"], json!({ "prompt_tokens": 2, "completion_tokens": 7, "total_tokens": 9 }));
        assert_eq!(
            (&whole["object"], &whole["system_fingerprint"]),
            (&json!("text_completion"), &json!("step-20"))
        );
    }

    #[test]
    fn an_echo_begins_with_the_prompt_and_its_scores() {
        let tokenizer = Tokenizer::bytes();
        let mut answer =
            answer(&json!({ "prompt": "ab", "echo": true, "logprobs": 0, "max_tokens": 1 }), &tokenizer);
        assert!(answer.wanted(1)[0].0.score_prompt);
        let scored = Token { id: 98, log_probability: -0.5, likeliest: vec![] };
        let first = Told::Wrote { prompt: vec![scored], tokens: vec![] };
        let mut pieces = Vec::new();
        for told in [first, wrote("c"), Told::Ended] {
            pieces.extend(answer.take(0, told, &tokenizer).unwrap());
        }
        let choice = &answer.whole(&pieces)["choices"][0];
        assert_eq!(choice["text"], "abc");
        assert_eq!(choice["logprobs"]["tokens"], json!(["a", "b", "c"]));
        assert_eq!(choice["logprobs"]["token_logprobs"], json!([null, -0.5, -0.99]));
        assert_eq!(choice["logprobs"]["text_offset"], json!([0, 1, 2]));
    }

    #[test]
    fn texts_of_one_prompt_have_different_seeds_and_a_given_seed_is_kept() {
        let tokenizer = Tokenizer::bytes();
        let answer = answer(&json!({ "prompt": ["a", "b"], "n": 2, "seed": 5 }), &tokenizer);
        let seeds: Vec<u64> = answer.wanted(9).iter().map(|(text, _)| text.sampling.seed).collect();
        assert_eq!(seeds, [5, 6, 5, 6]);
    }
}
