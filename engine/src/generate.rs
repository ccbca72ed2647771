//! Text from a model: one token after the other.
//!
//! Every token costs a whole forward pass over the window; there is no cache of keys and values.

use protocol::spec::{Hop, ModelSpec};

use crate::{
    device::Device,
    gpt2::{HopInput, Stage, StageError},
    init::{random, unit},
    parameters::ParameterSet,
};

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Choose among this many of the likeliest tokens; 0 for all.
    pub top_k: usize,
    /// The same seed gives the same text, on the same device.
    pub seed: u64,
}

/// A whole model that continues sequences of tokens.
pub struct Generator {
    stage: Stage,
    positions: usize,
}

impl Generator {
    /// A generator of text from these parameters.
    ///
    /// # Errors
    ///
    /// [`StageError`] when `parameters` are not those of the whole model on `device`.
    pub fn new(
        model: &ModelSpec,
        parameters: ParameterSet,
        device: &Device,
    ) -> Result<Generator, StageError> {
        let hops = [Hop { index: 0, part: model.whole() }];
        let stage = Stage::for_inference(model, &hops, device, parameters)?;
        Ok(Generator { stage, positions: model.positions as usize })
    }

    /// `count` tokens after `prompt`. When the text outgrows the model's positions, the window slides: only
    /// the last tokens are seen. `told` hears every token as it comes, and ends the text by answering false.
    ///
    /// # Errors
    ///
    /// [`StageError::Length`] for an empty prompt, [`StageError::Token`] for one with an unknown token.
    pub async fn generate(
        &self,
        prompt: &[u32],
        count: usize,
        sampling: Sampling,
        mut told: impl FnMut(u32) -> bool,
    ) -> Result<Vec<u32>, StageError> {
        let mut text = prompt.to_vec();
        for counter in 0..count as u64 {
            let window = &text[text.len().saturating_sub(self.positions)..];
            let input = HopInput::Tokens(window);
            let logits = self.stage.next_logits(0, input, [1, window.len()]).await?;
            let draw = unit(random(sampling.seed, counter));
            let token = choose(&logits, sampling, draw).ok_or(StageError::NotFinite { what: "a logit" })?;
            text.push(token);
            if !told(token) {
                break;
            }
        }
        Ok(text.split_off(prompt.len()))
    }
}

/// The token that `draw`, in (0, 1), falls on; None if a logit is not finite.
fn choose(logits: &[f32], sampling: Sampling, draw: f64) -> Option<u32> {
    if !logits.iter().all(|logit| logit.is_finite()) {
        return None;
    }
    // Likeliest first; of equals the one with the lower id.
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let logit = |token: u32| logits[token as usize];
    let likelier = |a: &u32, b: &u32| logit(*b).total_cmp(&logit(*a)).then(a.cmp(b));
    let keep = match sampling.top_k {
        _ if sampling.temperature <= 0.0 => 1,
        0 => order.len(),
        k => k.min(order.len()),
    };
    if keep < order.len() {
        order.select_nth_unstable_by(keep, likelier);
        order.truncate(keep);
    }
    order.sort_unstable_by(likelier);
    let highest = logit(*order.first()?);
    let weight = |token: &u32| libm::exp(f64::from(logit(*token) - highest) / sampling.temperature.max(1e-6));
    let total: f64 = order.iter().map(weight).sum();
    let mut left = draw * total;
    for token in &order {
        left -= weight(token);
        if left <= 0.0 {
            return Some(*token);
        }
    }
    order.last().copied()
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use testkit::fixtures::run;

    const LOGITS: [f32; 4] = [0.0, 2.0, -1.0, 1.0];

    fn sampling(temperature: f64, top_k: usize) -> Sampling {
        Sampling { temperature, top_k, seed: 1 }
    }

    /// Shares of 10,000 evenly spaced draws.
    fn shares(sampling: Sampling) -> [f64; 4] {
        let mut shares = [0.0; 4];
        for i in 0..10_000 {
            shares[choose(&LOGITS, sampling, (f64::from(i) + 0.5) / 1e4).unwrap() as usize] += 1e-4;
        }
        shares
    }

    #[test]
    fn tokens_come_as_often_as_softmax_says() {
        for temperature in [0.5, 1.0, 2.0] {
            let weights = LOGITS.map(|logit| (f64::from(logit) / temperature).exp());
            let total: f64 = weights.iter().sum();
            for (share, weight) in shares(sampling(temperature, 0)).iter().zip(weights) {
                assert!((share - weight / total).abs() < 2e-4);
            }
        }
    }

    #[test]
    fn top_k_leaves_the_others_out() {
        let found = shares(sampling(1.0, 2));
        assert_eq!((found[0], found[2]), (0.0, 0.0));
        assert!((found[1] - 1.0 / (1.0 + (-1f64).exp())).abs() < 2e-4);
        assert_eq!(shares(sampling(1.0, 9)), shares(sampling(1.0, 0)));
    }

    #[test]
    fn no_temperature_takes_the_likeliest() {
        assert_eq!(choose(&LOGITS, sampling(0.0, 0), 0.999), Some(1));
        assert_eq!(choose(&[1.0, 1.0], sampling(0.0, 0), 0.999), Some(0));
        assert_eq!(choose(&[1.0, f32::NAN], sampling(0.0, 0), 0.5), None);
    }

    #[test]
    fn text_is_repeatable_and_may_outgrow_the_window() {
        let model = run().model;
        let hops = [Hop { index: 0, part: model.whole() }];
        let parameters = ParameterSet::draw(&model, &hops, 3, &Device::Cpu);
        let generator = Generator::new(&model, parameters, &Device::Cpu).unwrap();
        let text = |seed| {
            let sampling = Sampling { temperature: 1.0, top_k: 0, seed };
            block_on(generator.generate(&[1, 2], 20, sampling, |_| true)).unwrap()
        };
        assert_eq!(text(1).len(), 20);
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
        let mut heard = Vec::new();
        let told = |token| {
            heard.push(token);
            heard.len() < 3
        };
        let sampling = Sampling { temperature: 1.0, top_k: 0, seed: 1 };
        let short = block_on(generator.generate(&[1, 2], 20, sampling, told)).unwrap();
        assert_eq!((&short[..], &heard[..]), (&text(1)[..3], &text(1)[..3]));
        let empty = block_on(generator.generate(&[], 1, sampling, |_| true));
        assert!(matches!(empty, Err(StageError::Length { .. })));
    }
}
