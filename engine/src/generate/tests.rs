//! Texts against those that are written without a cache.

use futures::executor::block_on;
use protocol::spec::{Hop, ModelSpec};
use testkit::fixtures::run;

use super::*;
use crate::{
    Device,
    gpt2::{HopInput, Stage, StageError},
    parameters::ParameterSet,
};

fn parameters(model: &ModelSpec) -> ParameterSet {
    let hops = [Hop { index: 0, part: model.whole() }];
    ParameterSet::draw(model, &hops, 3, &Device::Cpu)
}

/// With weights so large that every step has a clear winner, and texts differ.
fn model() -> ModelSpec {
    ModelSpec { positions: 12, ..run().model }
}

fn decoder(model: &ModelSpec) -> Decoder {
    Decoder::new(model, parameters(model), &Device::Cpu).unwrap()
}

fn sampled(seed: u64) -> Sampling {
    Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed }
}

fn write(request: &Request) -> Vec<u32> {
    block_on(decoder(&model()).write(request.clone(), |_| true)).unwrap()
}

/// The text from whole windows, one for each token.
fn without_cache(request: &Request) -> Vec<u32> {
    let model = model();
    let hops = [Hop { index: 0, part: model.whole() }];
    let stage = Stage::for_inference(&model, &hops, &Device::Cpu, parameters(&model)).unwrap();
    let mut text = request.prompt.clone();
    for counter in 0..request.count as u64 {
        let window = &text[text.len().saturating_sub(model.positions as usize)..];
        let logits = stage.next_logits(0, HopInput::Tokens(window), [1, window.len()]);
        let draw = crate::init::unit(crate::init::random(request.sampling.seed, counter));
        text.push(sampling::choose(&block_on(logits).unwrap(), request.sampling, draw).unwrap());
    }
    text.split_off(request.prompt.len())
}

#[test]
fn text_is_that_of_whole_windows_and_may_outgrow_them() {
    for sampling in [Sampling::GREEDY, sampled(1), sampled(2)] {
        for prompt in [vec![1], vec![1, 2], vec![5; 11], vec![3; 12], (0..30).map(|i| i % 11).collect()] {
            let request = Request::new(prompt, 25, sampling);
            assert_eq!(write(&request), without_cache(&request), "{request:?}");
        }
    }
    assert_ne!(
        write(&Request::new(vec![1, 2], 20, sampled(1))),
        write(&Request::new(vec![1, 2], 20, sampled(2)))
    );
}

#[test]
fn a_text_ends_when_it_is_told_to() {
    let request = Request::new(vec![1, 2], 20, sampled(1));
    let mut heard = Vec::new();
    let mut decoder = decoder(&model());
    let short = block_on(decoder.write(request.clone(), |token| {
        heard.push(token.id);
        heard.len() < 3
    }));
    assert_eq!((&short.unwrap()[..], &heard[..]), (&write(&request)[..3], &write(&request)[..3]));
    assert_eq!(decoder.open_texts(), 0);
}

#[test]
fn impossible_prompts_are_named() {
    let refused = |request: Request| decoder(&model()).open(request).unwrap_err();
    let request = |prompt| Request::new(prompt, 5, Sampling::GREEDY);
    assert!(matches!(refused(request(vec![])), StageError::Length { what: "a prompt", .. }));
    assert_eq!(refused(request(vec![1, 11])), StageError::Token { token: 11, vocabulary: 11 });
    let scored = Request { score_prompt: true, ..request(vec![1; 13]) };
    assert_eq!(refused(scored), StageError::TooLong { tokens: 13, positions: 12 });
}

/// Requests of unequal length, each in its own way.
fn mixed() -> Vec<Request> {
    (0..6u32)
        .map(|i| {
            let prompt = (0..=3 * i).map(|j| (j * j + i) % 11).collect();
            let sampling = if i % 2 == 0 { Sampling::GREEDY } else { sampled(u64::from(i)) };
            let request = Request::new(prompt, 4 + 3 * i as usize, sampling);
            Request { drafts: i as usize, likeliest: 2, ..request }
        })
        .collect()
}

#[test]
fn texts_do_not_depend_on_who_else_is_served() {
    for pieces in [1, 3, usize::MAX] {
        let mut decoder = decoder(&model()).in_pieces_of(pieces);
        let mut texts: Vec<(TextId, Vec<Token>)> = Vec::new();
        let mut waiting = mixed().into_iter();
        loop {
            // One more joins at every step.
            texts.extend(waiting.next().map(|request| (decoder.open(request).unwrap(), vec![])));
            if decoder.open_texts() == 0 {
                break;
            }
            for step in block_on(decoder.step()).unwrap() {
                let text = texts.iter_mut().find(|(id, _)| *id == step.text).unwrap();
                text.1.extend(step.progress.written);
            }
        }
        for (request, (_, together)) in mixed().into_iter().zip(texts) {
            let mut alone = Vec::new();
            let count = request.count;
            block_on(super::tests::decoder(&model()).write(request, |token| {
                alone.push(token.clone());
                true
            }))
            .unwrap();
            assert_eq!(together.len(), count);
            assert_eq!(alone, together, "to the last bit of the log-probabilities");
        }
    }
}

#[test]
fn drafts_save_traversals_and_change_nothing() {
    let prompt: Vec<u32> = [4, 5, 6, 7].into_iter().cycle().take(20).collect();
    let model = ModelSpec { positions: 200, ..run().model };
    for sampling in [Sampling::GREEDY, sampled(9)] {
        let text = |drafts| {
            let mut decoder = decoder(&model);
            let request = Request { drafts, ..Request::new(prompt.clone(), 150, sampling) };
            let tokens = block_on(decoder.write(request, |_| true)).unwrap();
            (tokens, decoder.traversals())
        };
        let (plain, traversals) = text(0);
        assert_eq!(traversals, 150);
        for drafts in [1, 3, 8] {
            let (drafted, fewer) = text(drafts);
            assert_eq!(plain, drafted);
            assert!(fewer <= traversals);
        }
    }
}

#[test]
fn text_that_repeats_itself_takes_a_traversal_for_all_its_drafts() {
    // After each token comes the next of four, and nothing else.
    let logits = |token: u32| (0..11).map(move |next| if next == (token + 1) % 4 { 5.0 } else { 0.0 });
    for (drafts, most) in [(0, 150), (1, 76), (4, 31), (7, 20)] {
        let request = Request { drafts, ..Request::new(vec![3, 0, 1, 2, 3], 150, Sampling::GREEDY) };
        let mut text = Text::new(&ModelSpec { positions: 200, ..run().model }, request).unwrap();
        let (mut written, mut traversals) = (Vec::new(), 0);
        while let Some(feed) = text.feed(usize::MAX) {
            traversals += 1;
            let rows: Vec<f32> = feed.tokens[feed.tokens.len() - feed.reading.rows()..]
                .iter()
                .flat_map(|&token| logits(token))
                .collect();
            written.extend(text.take(&rows, 11).unwrap().written.iter().map(|token| token.id));
        }
        assert_eq!(written, (0..150).map(|i| i % 4).collect::<Vec<u32>>());
        assert!(traversals <= most, "{traversals} with {drafts} drafts");
    }
}

#[test]
fn a_lost_cache_costs_no_token() {
    let request = Request { drafts: 3, ..Request::new(vec![1, 2, 3], 30, sampled(4)) };
    let expected = write(&request);
    let model = model();
    let hops = [Hop { index: 0, part: model.whole() }];
    let stage = Stage::for_inference(&model, &hops, &Device::Cpu, parameters(&model)).unwrap();
    for lost_every in 1..5 {
        let mut text = Text::new(&model, request.clone()).unwrap();
        let mut cache = stage.open_cache(0, text.positions()).unwrap();
        let (mut found, mut traversals) = (Vec::new(), 0);
        while let Some(feed) = text.feed(4) {
            traversals += 1;
            if traversals % (4 + 3 * lost_every) == 0 {
                cache = stage.open_cache(0, text.positions()).unwrap();
                text.forget_cache();
                continue;
            }
            cache.truncate(feed.keep);
            let input = HopInput::Tokens(&feed.tokens);
            let decode = crate::gpt2::Decode { cache: &mut cache, input, logits: feed.reading.rows() };
            let logits = block_on(stage.decode(0, vec![decode])).unwrap().remove(0);
            found.extend(text.take(&logits, 11).unwrap().written.iter().map(|token| token.id));
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn scores_of_a_prompt_are_those_of_its_loss() {
    let model = model();
    let hops = [Hop { index: 0, part: model.whole() }];
    let stage = Stage::for_inference(&model, &hops, &Device::Cpu, parameters(&model)).unwrap();
    let prompt = vec![1, 5, 2, 7, 7, 0, 10, 3];
    for (pieces, count) in [(1, 0), (3, 2), (usize::MAX, 0), (usize::MAX, 3)] {
        let mut decoder = decoder(&model).in_pieces_of(pieces);
        let request =
            Request { score_prompt: true, likeliest: 11, ..Request::new(prompt.clone(), count, sampled(1)) };
        decoder.open(request).unwrap();
        let mut scored = Vec::new();
        let mut written = 0;
        while decoder.open_texts() > 0 {
            for step in block_on(decoder.step()).unwrap() {
                scored.extend(step.progress.prompt);
                written += step.progress.written.len();
            }
        }
        assert_eq!(written, count);
        assert_eq!(scored.iter().map(|token| token.id).collect::<Vec<_>>(), prompt[1..]);
        let logits = block_on(stage.logits(0, HopInput::Tokens(&prompt), [1, 8])).unwrap();
        for (token, row) in scored.iter().zip(logits.chunks_exact(11)) {
            let total: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
            let exact = f64::from(row[token.id as usize]) - total.ln();
            assert!((token.log_probability - exact).abs() < 1e-5);
            let sum: f64 = token.likeliest.iter().map(|(_, ln)| ln.exp()).sum();
            assert!((sum - 1.0).abs() < 1e-5 && token.likeliest.is_sorted_by(|a, b| a.1 >= b.1));
        }
    }
}
