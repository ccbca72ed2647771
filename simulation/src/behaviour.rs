//! What hostile workers make of their deltas before they send them.

use engine::aggregate::norm;

use super::chance;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Behaviour {
    Honest,
    /// Times minus this.
    SignFlip(f32),
    /// Normal numbers, together this many times as long as the honest delta.
    Noise(f64),
    /// Times this.
    Scale(f32),
    Zeros,
    /// The first delta again and again, under a new header.
    Replay,
    /// The delta of an honest worker at the same block, a moment after that.
    Copy,
}

impl Behaviour {
    /// For people.
    pub fn name(&self) -> &'static str {
        match self {
            Behaviour::Honest => "honest",
            Behaviour::SignFlip(_) => "sign flip x10",
            Behaviour::Noise(_) => "noise",
            Behaviour::Scale(_) => "scale x100",
            Behaviour::Zeros => "zeros",
            Behaviour::Replay => "stale replay",
            Behaviour::Copy => "copy",
        }
    }

    /// Turns an honest delta into what is sent. `first` is the worker's first delta, `other` that of an honest
    /// colleague; without them it stays honest.
    pub(super) fn apply(
        &self,
        delta: &mut [Vec<f32>],
        first: Option<&[Vec<f32>]>,
        other: Option<&[Vec<f32>]>,
        keys: [u64; 3],
    ) {
        let mut each = |f: &dyn Fn(f32) -> f32| delta.iter_mut().flatten().for_each(|x| *x = f(*x));
        match *self {
            Behaviour::Honest => {}
            Behaviour::SignFlip(factor) => each(&|x| -factor * x),
            Behaviour::Scale(factor) => each(&|x| factor * x),
            Behaviour::Zeros => each(&|_| 0.0),
            Behaviour::Noise(times) => {
                let flat = delta.concat();
                let deviation = times * norm(&flat) / (flat.len() as f64).sqrt();
                noise(delta, deviation, keys);
            }
            Behaviour::Replay | Behaviour::Copy => {
                let source = if *self == Behaviour::Replay { first } else { other };
                if let Some(source) = source {
                    delta.iter_mut().zip(source).for_each(|(mine, theirs)| mine.clone_from(theirs));
                }
            }
        }
    }
}

/// Normal numbers of this deviation.
pub(super) fn noise(delta: &mut [Vec<f32>], deviation: f64, [a, b, c]: [u64; 3]) {
    for (counter, x) in (0..).zip(delta.iter_mut().flatten()) {
        *x = (deviation * chance::normal(&[a, b, c, counter])) as f32;
    }
}
