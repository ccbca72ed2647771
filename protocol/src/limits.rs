//! How long the texts and lists of a message may be, and how large its numbers.
//!
//! A header that keeps these limits fits into [`HEADER_BYTES`] in every message. The rule of each field
//! stands beside it, in [`crate::message`].

/// Bytes of a header: of a frame, and of a delta's file.
pub const HEADER_BYTES: usize = 64 << 10;
/// Characters of a worker's or a run's name.
pub const NAME: usize = 64;
/// Characters of a build's, a device's or a message's description, for people to read.
pub const LABEL: usize = 128;
/// Characters of a sentence: the detail of a fault or refusal, the reason of leaving.
pub const SENTENCE: usize = 512;
/// Characters of a bearer token.
pub const TOKEN: usize = 256;
/// Micro-batches of a step, each with a loss in the step's report.
pub const LOSSES: usize = 4096;
/// Bytes of padding in a probe or its answer.
pub const PROBE: usize = 4 << 20;
/// Hops of a plan, and layers of a model.
pub const HOPS: usize = 1024;
/// Blobs of one assignment or evaluation.
pub const BLOBS: usize = 1024;
/// Local steps of a worker in one round.
pub const LOCAL_STEPS: usize = 4096;
/// Blocks of a model, each with its scores.
pub const BLOCKS: usize = 1024;
/// Batches of one measurement on the held-out split.
pub const VALIDATION_BATCHES: u64 = 1 << 20;
/// Draws of noise in one evaluation.
pub const DRAWS: u64 = 1000;
/// Texts that are written at a time.
pub const TEXTS: usize = 128;
/// Rows of logits that are read in one traversal.
pub const READ_ROWS: usize = 512;
/// Of one text's, rows that say how likely known tokens were.
pub const SCORED_ROWS: usize = 64;
/// Likeliest tokens that are told with one.
pub const LIKELIEST: usize = 5;
/// Tokens of one text.
pub const POSITIONS: u64 = 1 << 24;
/// Threads of a worker.
pub const THREADS: u64 = 1 << 16;
/// Bytes of memory that a device can have: a pebibyte.
pub const MEMORY_BYTES: u64 = 1 << 50;
/// Bytes of one blob.
pub const BLOB_BYTES: u64 = 1 << 46;
/// Bytes a second of a link.
pub const LINK_RATE: f64 = 1e12;
/// Sum of squares of gradients. Finite f32, of size 3.4e38 at most, give 1.2e89 for 10^12 parameters; sums of this
/// over all stages stay finite.
pub const SQUARED_NORM: f64 = 1e100;

/// Cuts a text to `limit` characters; what is cut off shows as an ellipsis. For texts from outside, such as
/// a driver's error, on their way into a message.
pub fn shorten(text: &str, limit: usize) -> String {
    if text.chars().nth(limit).is_none() {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(std::iter::once('…')).take(limit).collect()
}
