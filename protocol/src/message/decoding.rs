//! Texts that the workers of a plan write: their next tokens travel through the hops in order, and each hop answers the
//! coordinator.

use serde::{Deserialize, Serialize};

use super::{Payload, described, measurements::seconds};
use crate::{
    checked::{RuleResult, any, at_most, checked_struct, counter, list, nested, within},
    limits,
    tensor::TensorMeta,
};

checked_struct! {
    /// New tokens of several texts, to go through the part of the model at one hop: ids [R] for the hop with the
    /// embedding, hidden states [R, d] for any other. R is the sum of all texts' rows.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Decode {
        /// Which traversal of which plan.
        pub of: Traversal => nested,
        /// Whose rows follow, in their order.
        pub texts: Vec<TextRows> => list(limits::TEXTS, nested),
        /// What the payload holds.
        pub rows: TensorMeta => described,
    }
}

impl Decode {
    pub(super) fn payload(&self) -> Payload<'_> {
        Payload::Tensor(&self.rows)
    }
}

checked_struct! {
    /// One hop of one pass of new tokens through all hops.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Traversal {
        /// Number of the plan.
        pub epoch: u64 => counter,
        /// Number of the traversal.
        pub number: u64 => counter,
        /// The hop that computes.
        pub hop: u32 => at_most(limits::HOPS as u64),
    }
}

checked_struct! {
    /// The new tokens of one text.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TextRows {
        /// Number of the text.
        pub text: u64 => counter,
        /// Most tokens that the text will have: its cache is made for so many when it is met first.
        pub positions: u32 => at_most(limits::POSITIONS),
        /// Tokens of the text that the hop's cache keeps; it forgets the others.
        pub keep: u32 => at_most(limits::POSITIONS),
        /// Tokens that come after those.
        pub rows: u32 => at_most(limits::POSITIONS),
        /// What the hop with the head reads from the logits of the last of them.
        pub reading: ReadRows => nested,
    }
}

checked_struct! {
    /// How logits are read. First come rows that say how likely known tokens were, then rows that choose a token each.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ReadRows {
        /// The known tokens.
        pub scored: Vec<u32> => list(limits::SCORED_ROWS, any),
        /// Rows that choose.
        pub choices: u32 => at_most(limits::READ_ROWS as u64),
        /// Place, among the text's new tokens, of the first that is chosen: it has a random number of its own.
        pub first: u64 => counter,
        /// Logits are divided by it; 0 always takes the likeliest token.
        pub temperature: f64 => within(0.0, 1e6),
        /// Choose among so many of the likeliest tokens; 0 for all.
        pub top_k: u32 => any,
        /// Of those, among the fewest that together have this share of the probability.
        pub top_p: f64 => within(0.0, 1.0),
        /// Of the random numbers.
        pub seed: u64 => any,
        /// How many of the likeliest tokens to tell with each.
        pub likeliest: u32 => at_most(limits::LIKELIEST as u64),
    }
}

checked_struct! {
    /// A token that was read from a row of logits.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ReadToken {
        /// Its id.
        pub id: u32 => any,
        /// ln of its probability.
        pub log_probability: f64 => log_probability(),
        /// The likeliest tokens in its place with ln of their probabilities, likeliest first.
        pub likeliest: Vec<(u32, f64)> => list(limits::LIKELIEST, |(_, log)| log_probability()(log)),
    }
}

/// Far less likely than logits of any sound model make a token, up to what rounding adds to certainty.
fn log_probability() -> impl Fn(&f64) -> RuleResult {
    within(-1e20, 1e-3)
}

checked_struct! {
    /// Texts of this plan that have ended: their caches may go.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CloseTexts {
        /// Number of the plan.
        pub epoch: u64 => counter,
        /// Numbers of the texts.
        pub texts: Vec<u64> => list(limits::TEXTS, counter),
    }
}

checked_struct! {
    /// Answers a [`Decode`]: hidden states [R, d] or, of the hop with the head, what was read from the logits.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Decoded {
        /// As in the message that is answered.
        pub of: Traversal => nested,
        /// Time that it was computed for.
        pub seconds: f64 => seconds(),
        /// A token for each row of logits that was to be read, text by text; none but of the hop with the head.
        pub tokens: Vec<ReadToken> => list(limits::READ_ROWS, nested),
        /// What the payload holds: [R, d], or [0, d] of the hop with the head.
        pub rows: TensorMeta => described,
    }
}

impl Decoded {
    pub(super) fn payload(&self) -> Payload<'_> {
        Payload::Tensor(&self.rows)
    }
}
