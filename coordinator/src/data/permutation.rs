//! A pseudo-random order of `0..n` that needs no table.

use control::mix::mix;

/// A keyed permutation of `0..n`: a balanced Feistel network over the next even number of bits, walked until
/// it lands below `n` (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    size: u64,
    key: u64,
    /// Bits of each half; the network permutes `0..4^half_bits`, less than four times `size`.
    half_bits: u32,
}

const ROUNDS: u64 = 8;

impl Permutation {
    /// Of `0..size`; `size` is at least 1.
    pub fn new(size: u64, key: u64) -> Self {
        let bits = u64::BITS - size.saturating_sub(1).leading_zeros();
        Self { size, key, half_bits: bits.div_ceil(2).max(1) }
    }

    /// Image of `index`, which is below the size.
    pub fn at(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            x = self.network(x);
            // The walk follows the cycle of `index`, which comes back below the size at the latest there.
            if x < self.size {
                return x;
            }
        }
    }

    fn network(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = ((x >> self.half_bits) & mask, x & mask);
        for round in 0..ROUNDS {
            let scrambled = mix(mix(self.key ^ round) ^ right) & mask;
            (left, right) = (right, left ^ scrambled);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_comes_once() {
        for size in (1..300).chain([1023, 1024, 1025, 4097]) {
            for key in [0, 1, u64::MAX] {
                let order = Permutation::new(size, key);
                let mut seen = vec![false; size as usize];
                for i in 0..size {
                    let at = order.at(i) as usize;
                    assert!(!seen[at], "size {size}, key {key}: {at} comes twice");
                    seen[at] = true;
                }
            }
        }
    }

    #[test]
    fn an_order_is_neither_sorted_nor_shared_between_keys() {
        let order = |key| (0..1000).map(|i| Permutation::new(1000, key).at(i)).collect::<Vec<_>>();
        let (a, b) = (order(1), order(2));
        let equal = a.iter().zip(&b).filter(|(x, y)| x == y).count();
        assert!(equal < 20, "{equal} of 1000 indices agree between two keys; chance is about 1");
        let fixed = a.iter().enumerate().filter(|(i, x)| *i as u64 == **x).count();
        assert!(fixed < 20, "{fixed} of 1000 indices stay; chance is about 1");
    }

    #[test]
    fn the_largest_size_works() {
        let order = Permutation::new(u64::MAX, 7);
        assert_ne!(order.at(0), order.at(u64::MAX - 1));
    }
}
