//! What several crates' tests need, and nothing that runs in production.
//!
//! | module | has |
//! |---|---|
//! | [`fixtures`] | a small run of either mode, to be changed where a test needs another |
//! | [`golden`] | golden vectors: the files read, results compared, what was found in words |

#![deny(missing_docs, unreachable_pub)]

pub mod fixtures;
pub mod golden;
