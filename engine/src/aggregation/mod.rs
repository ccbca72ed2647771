//! One update out of many, between two rounds of block mode.
//!
//! [`aggregate`] makes one contribution of many by robust rules, [`Outer`] moves the weights by it, and
//! [`server`] keeps the weights, checks every delta before it touches them, and does both.

mod bodies;
mod means;
mod outer;
pub mod server;

pub use means::{Aggregator, aggregate, median, norm, weighted_mean};
pub use outer::{Outer, OuterStep};

/// Why contributions cannot be aggregated.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum AggregateError {
    /// None has arrived.
    #[error("there are no contributions: keep the old weights and go on to the next round")]
    Nothing,
    /// Vectors of different lengths.
    #[error("{what} {index} has {found} numbers, the others have {expected}: all must be of one block")]
    Length {
        /// Contribution, previous update, delta or momentum.
        what: &'static str,
        /// Which of the contributions, from 0.
        index: usize,
        /// Numbers in it.
        found: usize,
        /// Numbers in the others.
        expected: usize,
    },
    /// Not finite, or not above 0.
    #[error("the centred clip's radius is {0}: give a finite number above 0, or none for the median length")]
    Radius(f64),
    /// A centred clip that does nothing.
    #[error("the centred clip has 0 iterations: give at least 1")]
    NoIterations,
    /// Not one weight a contribution.
    #[error("there are {weights} weights for {contributions} contributions: give one for each")]
    Weights {
        /// Weights given.
        weights: usize,
        /// Contributions given.
        contributions: usize,
    },
    /// A weight that is negative or not finite, or weights whose sum is 0.
    #[error("weight {index} is {weight}: weights are finite, not negative, and not all 0")]
    Weight {
        /// Which, from 0.
        index: usize,
        /// Its value.
        weight: f64,
    },
}
