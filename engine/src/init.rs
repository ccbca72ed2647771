//! Initial weights from a counter-based generator.
//!
//! Each number depends on (seed, name of the parameter, index) alone, so that a stage draws just its own
//! share, in any order, and every device draws the same bits: integer mixing, then f64 arithmetic through
//! `libm` (never the platform's own functions), rounded to f32 once.

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Start {
    /// 0 everywhere.
    Zeros,
    /// 1 everywhere.
    Ones,
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// This number everywhere.
    Constant(f64),
}

impl Start {
    /// The `len` initial values of the parameter called `name`, flat.
    pub fn draw(self, name: &str, len: usize, seed: u64) -> Vec<f32> {
        match self {
            Start::Zeros => vec![0.0; len],
            Start::Ones => vec![1.0; len],
            Start::Constant(value) => vec![value as f32; len],
            Start::Normal(deviation) => normal(stream(seed, name), deviation, len),
        }
    }
}

/// The key of a parameter's own stream of numbers.
pub(crate) fn stream(seed: u64, name: &str) -> u64 {
    // FNV-1a over the name: names are few and short, the mixing does the rest.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(hash ^ mix(seed))
}

/// The number at `counter` of a stream (SplitMix64, whose state is a counter).
pub(crate) fn random(stream: u64, counter: u64) -> u64 {
    mix(stream.wrapping_add(counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in (0, 1), from the upper 53 bits.
pub(crate) fn unit(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
}

/// Normal numbers by Box and Muller; each pair of numbers costs one pair of draws.
pub(crate) fn normal(stream: u64, deviation: f64, len: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(len + 1);
    for pair in 0..len.div_ceil(2) as u64 {
        let radius = deviation * libm::sqrt(-2.0 * libm::log(unit(random(stream, 2 * pair))));
        let (sine, cosine) = libm::sincos(2.0 * std::f64::consts::PI * unit(random(stream, 2 * pair + 1)));
        values.push((radius * cosine) as f32);
        values.push((radius * sine) as f32);
    }
    values.truncate(len);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, rows: usize, seed: u64) -> Vec<f32> {
        Start::Normal(0.02).draw(name, 16 * rows, seed)
    }

    #[test]
    fn values_follow_seed_and_name_and_nothing_else() {
        let a = table("a", 8, 1);
        assert_eq!(a, table("a", 8, 1));
        assert_ne!(a, table("a", 8, 2));
        assert_ne!(a, table("b", 8, 1));
        assert_eq!(a, table("a", 9, 1)[..a.len()]);
    }

    #[test]
    fn the_distribution_is_normal() {
        let values = table("table", 20_000, 7);
        let n = values.len() as f64;
        let moment = |power: i32| values.iter().map(|&x| (f64::from(x) / 0.02).powi(power)).sum::<f64>() / n;
        assert!(moment(1).abs() < 0.01);
        assert!((moment(2) - 1.0).abs() < 0.01);
        assert!(moment(3).abs() < 0.03);
        assert!((moment(4) - 3.0).abs() < 0.06);
        let beyond = values.iter().filter(|x| x.abs() > 0.04).count() as f64 / n;
        assert!((beyond - 0.0455).abs() < 0.002);
    }

    #[test]
    fn ones_and_zeros() {
        assert_eq!(Start::Ones.draw("w", 3, 1), [1.0; 3]);
        assert_eq!(Start::Zeros.draw("w", 3, 1), [0.0; 3]);
    }
}
