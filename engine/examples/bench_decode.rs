//! Times the writing of texts by a whole model with random weights, and prints one line of JSON for each number of
//! texts at a time, with the speed that reading all weights once a traversal would allow.
//!
//! `cargo run --example bench_decode -p engine [-- --texts 1,8] [--prompt 32] [--tokens 64] [--drafts 0] [--width 768]
//! [--layers 12] [--heads 12] [--positions 1024] [--vocabulary 50257]`

use std::time::Instant;

use engine::{
    device::Device,
    generate::{Decoder, Request, Sampling},
    gpt2::shapes,
    parameters::ParameterSet,
};
use futures::executor::block_on;
use protocol::spec::{Hop, ModelSpec};
use rayon::prelude::*;

/// The value after `--name`, or `default`.
fn option<T: std::str::FromStr>(name: &str, default: T) -> T {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Bytes a second at which all threads together read numbers that no cache holds: the best of ten.
fn bandwidth() -> f64 {
    let numbers = vec![1.0f32; 1 << 27];
    let piece = numbers.len() / rayon::current_num_threads();
    let once = || {
        let began = Instant::now();
        let sum: f32 = numbers
            .par_chunks(piece)
            .map(|numbers| {
                let mut lanes = [0.0f32; 64];
                for chunk in numbers.as_chunks::<64>().0 {
                    lanes.iter_mut().zip(chunk).for_each(|(lane, number)| *lane += number);
                }
                lanes.iter().sum::<f32>()
            })
            .sum();
        assert!(sum > 0.0);
        size_of_val(numbers.as_slice()) as f64 / began.elapsed().as_secs_f64()
    };
    (0..10).map(|_| once()).fold(0.0, f64::max)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = ModelSpec {
        vocabulary: option("--vocabulary", 50257),
        positions: option("--positions", 1024),
        width: option("--width", 768),
        heads: option("--heads", 12),
        layers: option("--layers", 12),
        tie_embeddings: true,
    };
    let [prompt, tokens, drafts] =
        [("--prompt", 32), ("--tokens", 64), ("--drafts", 0)].map(|(name, default)| option(name, default));
    let texts: String = option("--texts", "1,8".into());
    let bandwidth = bandwidth();
    let hops = [Hop { index: 0, part: model.whole() }];
    let parameters = ParameterSet::draw(&model, &hops, 1, &Device::Cpu);
    // The position table is not read as a whole, and all else is.
    let weights: usize = shapes::of_model(&model).iter().map(|shape| shape.len()).sum::<usize>()
        - (model.positions * model.width) as usize;
    let bytes = weights * size_of::<f32>();
    let mut decoder = Decoder::new(&model, parameters, &Device::Cpu)?;
    for texts in texts.split(',') {
        let texts: u32 = texts.parse()?;
        for text in 0..texts {
            let prompt = (0..prompt as u32).map(|i| (i * 7919 + text * 104_729) % model.vocabulary).collect();
            decoder.open(Request { drafts, ..Request::new(prompt, tokens, Sampling::GREEDY) })?;
        }
        let began = Instant::now();
        block_on(decoder.step())?;
        let first = began.elapsed().as_secs_f64();
        let (before, began, mut written) = (decoder.traversals(), Instant::now(), 0);
        while decoder.open_texts() > 0 {
            written +=
                block_on(decoder.step())?.iter().map(|step| step.progress.written.len()).sum::<usize>();
        }
        let seconds = began.elapsed().as_secs_f64();
        let traversals = decoder.traversals() - before;
        let line = serde_json::json!({
            "bench": "decode",
            "threads": rayon::current_num_threads(),
            "model": model,
            "texts": texts,
            "prompt": prompt,
            "tokens": tokens,
            "drafts": drafts,
            "seconds_to_first_token": first,
            "traversals": traversals,
            "tokens_per_second": written as f64 / seconds,
            "gigabytes_per_second": bandwidth / 1e9,
            "share_of_bandwidth": traversals as f64 * bytes as f64 / seconds / bandwidth,
        });
        println!("{line}");
    }
    Ok(())
}
