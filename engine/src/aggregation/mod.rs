//! One update out of many, between two rounds of block mode.
//!
//! [`aggregate`] makes one contribution of many by robust rules, [`Outer`] moves the weights by it, and [`server`] keeps
//! the weights, checks every delta before it touches them, and does both.

mod means;
mod outer;
pub mod server;

pub use means::{Aggregator, aggregate, median, norm, weighted_mean};
pub use outer::{Outer, OuterStep};

/// Why contributions cannot be aggregated.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum AggregateError {
    #[error("there are no contributions: keep the old weights and go on to the next round")]
    Nothing,
    #[error("{what} {index} has {found} numbers, the others have {expected}: all must be of one block")]
    Length { what: &'static str, index: usize, found: usize, expected: usize },
    #[error("the centred clip's radius is {0}: give a finite number above 0, or none for the median length")]
    Radius(f64),
    #[error("the centred clip has 0 iterations: give at least 1")]
    NoIterations,
    #[error("there are {weights} weights for {contributions} contributions: give one for each")]
    Weights { weights: usize, contributions: usize },
    #[error("weight {index} is {weight}: weights are finite, not negative, and not all 0")]
    Weight { index: usize, weight: f64 },
}
