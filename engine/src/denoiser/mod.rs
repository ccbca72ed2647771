//! Block mode: a language model as B denoisers that are trained apart and composed at inference.
//!
//! After DiffusionBlocks (Shing, Koyama and Akiba, <https://arxiv.org/abs/2506.14202>) with EDM
//! preconditioning (Karras et al., <https://arxiv.org/abs/2206.00364>). V tokens, width d, T positions; E [V,
//! d] is a table that all blocks share, `codes` are its rows over their length; x are the tokens read, y
//! those that follow them. One sigma per sequence, sigma_data = 0.5:
//!
//! ```text
//! z      = codes[y] + sigma * eps                         eps ~ N(0, I)
//! h0     = sqrt(d) codes[x] + (c_in z) Wz^T + P[0:T] + time(c_noise)
//! h      = LN_f(layers(h0))                               causal, GPT-2's layers
//! zhat   = c_out h + c_skip z
//! logits = logit_scale * zhat codes^T
//! loss   = mean_n w(sigma_n) mean_t CE(logits[n, t], y[n, t])
//! time(u)= W2 silu(W0 phi(u) + b0) + b2,  phi(u) = [cos(u f_i), sin(u f_i)],  f_i = exp(-ln(1e4) i / 128)
//! ```
//!
//! Each block is trained on its own range of sigma ([`noise`]) by [`Replica`]; [`sweep`] composes them, and
//! [`evaluate`] says how good the whole is, and [`write`](mod@write) continues texts; [`config`](mod@config) describes a
//! model to other programs.

pub mod config;
pub mod evaluate;
pub mod noise;
mod pass;
pub mod recheck;
mod replica;
mod round;
pub mod shapes;
pub mod sweep;
#[cfg(test)]
mod tests;
mod weights;
pub mod write;

pub use replica::{BlockError, Replica, StepScore};
pub use round::{LocalRound, Task};
pub use weights::Weights;

use protocol::spec::{BlockSpec, ModelSpec};

use noise::{NoiseError, NoiseLaw, NoiseSchedule};

/// The ranges of sigma of a run.
///
/// # Errors
///
/// [`NoiseError`] naming the field that makes no sense.
pub fn schedule(spec: &BlockSpec) -> Result<NoiseSchedule, NoiseError> {
    let law = NoiseLaw { mean: spec.p_mean, deviation: spec.p_std };
    NoiseSchedule::new(law, spec.sigma_min, spec.sigma_max, spec.count, spec.gamma)
}

/// L_b, layers of each block; None where B does not divide the model's layers.
pub fn layers_per_block(model: &ModelSpec, spec: &BlockSpec) -> Option<u32> {
    let divides = spec.count > 0 && model.layers > 0 && model.layers.is_multiple_of(spec.count);
    divides.then(|| model.layers / spec.count)
}
