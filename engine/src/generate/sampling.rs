//! Which token comes next.

use crate::cpu::simd::exp;

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it; 0 always takes the likeliest token.
    pub temperature: f64,
    /// Choose among this many of the likeliest tokens; 0 for all.
    pub top_k: usize,
    /// Of those, among the fewest likeliest tokens that together have this share of their probability; 1 for all.
    /// There is always one.
    pub top_p: f64,
    /// The same seed gives the same text, on the same device.
    pub seed: u64,
}

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 };
}

/// The token that `draw`, in (0, 1), falls on; None if a logit is not finite.
pub(crate) fn choose(logits: &[f32], sampling: Sampling, draw: f64) -> Option<u32> {
    if !logits.iter().all(|logit| logit.is_finite()) {
        return None;
    }
    if sampling.temperature <= 0.0 || sampling.top_k == 1 {
        return likeliest(logits, 1).first().copied();
    }
    let keep = if sampling.top_k == 0 { logits.len() } else { sampling.top_k.min(logits.len()) };
    let highest = logits.iter().copied().fold(f32::MIN, f32::max);
    let inverse = (1.0 / sampling.temperature.max(1e-6)) as f32;
    let weigh = |logit: f32| f64::from(exp((logit - highest) * inverse));
    let weight = |token: &u32| weigh(logits[*token as usize]);
    let total: f64 = match keep == logits.len() {
        true => logits.iter().copied().map(weigh).sum(),
        false => likeliest(logits, keep).iter().map(weight).sum(),
    };
    // The draw nearly always falls on one of the first few: the whole vocabulary need not be sorted.
    let mut count = 64.min(keep);
    loop {
        let order = likeliest(logits, count);
        let (kept, sum) = match sampling.top_p < 1.0 {
            true => fewest(&order, weight, sampling.top_p * total),
            false => (None, total),
        };
        let known = sampling.top_p >= 1.0 || kept.is_some() || count == keep;
        let tokens = &order[..kept.unwrap_or(order.len())];
        match known.then(|| fall(tokens, weight, draw * sum)).flatten() {
            Some(token) => return Some(token),
            None if count == keep || kept.is_some() => return tokens.last().copied(),
            None => count = (count * 8).min(keep),
        }
    }
}

/// How many of the first tokens have at least `share` of weight together, None if all have less; and their weight.
fn fewest(order: &[u32], weight: impl Fn(&u32) -> f64, share: f64) -> (Option<usize>, f64) {
    let mut sum = 0.0;
    for (index, token) in order.iter().enumerate() {
        sum += weight(token);
        if sum >= share {
            return (Some(index + 1), sum);
        }
    }
    (None, sum)
}

/// The token on which `left` falls when the tokens' weights lie in a row; None beyond them.
fn fall(order: &[u32], weight: impl Fn(&u32) -> f64, mut left: f64) -> Option<u32> {
    order.iter().copied().find(|token| {
        left -= weight(token);
        left <= 0.0
    })
}

/// The `count` likeliest tokens, likeliest first; of equals the one with the lower id.
pub(crate) fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    let logit = |token: u32| logits[token as usize];
    let likelier = |a: &u32, b: &u32| logit(*b).total_cmp(&logit(*a)).then(a.cmp(b));
    if count == 1 {
        return (0..logits.len() as u32).min_by(likelier).into_iter().collect();
    }
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    if count < order.len() {
        order.select_nth_unstable_by(count, likelier);
        order.truncate(count);
    }
    order.sort_unstable_by(likelier);
    order
}

/// ln of the sum of all exponentials: a token's log-probability is its logit less this.
pub(crate) fn log_sum(logits: &[f32]) -> f64 {
    let highest = logits.iter().copied().fold(f32::MIN, f32::max);
    let total: f64 = logits.iter().map(|logit| f64::from(exp(logit - highest))).sum();
    f64::from(highest) + libm::log(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, -1.0, 1.0];

    fn sampling(temperature: f64, top_k: usize) -> Sampling {
        Sampling { temperature, top_k, top_p: 1.0, seed: 1 }
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
    fn top_p_keeps_the_fewest_tokens_with_that_share() {
        // Of all, the tokens have 0.087, 0.644, 0.032 and 0.237.
        let of = |top_p| shares(Sampling { top_p, ..sampling(1.0, 0) });
        assert_eq!(of(0.0), [0.0, 1.0, 0.0, 0.0].map(|share: f64| share * of(0.0)[1]));
        assert_eq!((of(0.6)[3], of(0.6)[0]), (0.0, 0.0));
        let two = of(0.7);
        assert_eq!((two[0], two[2]), (0.0, 0.0));
        assert!((two[1] - 0.644 / 0.881).abs() < 1e-3);
        assert_eq!(of(0.95)[2], 0.0);
        assert!(of(0.99)[2] > 0.0);
        // The share is of what top_k leaves: of the first two, the first has 0.73.
        let both = shares(Sampling { top_p: 0.72, ..sampling(1.0, 2) });
        assert!(both[1] > 0.999 && both[3] == 0.0);
    }

    #[test]
    fn no_temperature_takes_the_likeliest() {
        assert_eq!(choose(&LOGITS, sampling(0.0, 0), 0.999), Some(1));
        assert_eq!(choose(&[1.0, 1.0], sampling(0.0, 0), 0.999), Some(0));
        assert_eq!(choose(&[1.0, f32::NAN], sampling(0.0, 0), 0.5), None);
    }

    #[test]
    fn a_large_vocabulary_is_chosen_from_as_if_it_were_sorted_as_a_whole() {
        let logits: Vec<f32> = (0..5000u64).map(|i| (i * 7919 % 5000) as f32 / 2500.0).collect();
        let order = likeliest(&logits, 5000);
        let weights: Vec<f64> = order.iter().map(|&token| f64::from(logits[token as usize]).exp()).collect();
        let total: f64 = weights.iter().sum();
        for draw in (1..200).map(|i| f64::from(i) / 200.0) {
            let mut left = draw * total;
            let at = weights.iter().position(|weight| {
                left -= weight;
                left <= 0.0
            });
            let found = choose(&logits, sampling(1.0, 0), draw).unwrap();
            let place = order.iter().position(|&token| token == found).unwrap();
            // Exponentials in f32, added in another order, move a draw to the neighbour at most.
            assert!(place.abs_diff(at.unwrap()) <= 1, "{draw}: {place}, not {at:?}");
        }
    }

    #[test]
    fn log_probabilities_are_those_of_softmax() {
        let total: f64 = LOGITS.iter().map(|&logit| f64::from(logit).exp()).sum();
        assert!((log_sum(&LOGITS) - total.ln()).abs() < 1e-6);
    }
}
